"""`relumt quantize`: what it refuses before it starts, its records and its table; slow: on a trained run."""

import json
from dataclasses import replace

import pytest

from relumt.cli import main
from relumt.errors import UserError
from relumt.runs.quantized_record import (
    FLOAT,
    QUANTIZED_FOLDER,
    QUANTIZED_RECORD,
    QuantizedModel,
    QuantizedRecord,
    TimedEvaluation,
    find_quantized_records,
    read_quantized_record,
    save_quantized_record,
)
from relumt.runs.quantized_steps import find_evaluated_run
from relumt.runs.record import save_record
from relumt.tables.quantized_comparison import compare_models
from tests.runs.cases import CPU, ENVIRONMENT, SIGNATURES, scored_record, with_value, write_data_bin

REFERENCES = [f"a b c d{n} e" for n in range(20)]
FILES = {"bleu_tokenized": ("valid.hyp.tok", "valid.ref.tok")}


def quantized_model(bits, part="all"):
    return QuantizedModel(bits, part, "c", "c", "valid", "d", 6, 33, {"distances": 22, "products": 39})


def write_model(run, name, hypotheses, bleu, model=None, seconds=10.0):
    """Write what a translation of the validation set leaves in a model's folder."""
    evaluation = scored_record(bleu=bleu, signatures=dict.fromkeys(SIGNATURES, "case:lc|tok:none")).test_evaluation
    evaluation = replace(evaluation, setup=replace(evaluation.setup, subset="valid"), scored_files=FILES)
    folder = run / QUANTIZED_FOLDER / name
    folder.mkdir(parents=True)
    for file, lines in zip(FILES["bleu_tokenized"], (hypotheses, REFERENCES), strict=True):
        (folder / file).write_text("".join(f"{line}\n" for line in lines))
    save_quantized_record(folder, QuantizedRecord(model, {"valid": TimedEvaluation(evaluation, seconds)}))
    return folder


def test_the_table_compares_with_the_float_model(tmp_path):
    write_model(tmp_path, "int8", ["x"] * 20, 1.0, quantized_model(8))
    write_model(tmp_path, "int16", REFERENCES, 90.0, quantized_model(16))
    write_model(tmp_path, "int16-attention", ["p q r s u", *REFERENCES[1:]], 80.5, quantized_model(16, "attention"))
    write_model(tmp_path, FLOAT, REFERENCES, 90.0, seconds=7.4)
    table = compare_models(tmp_path, "valid")
    assert [row[0] for row in table.rows] == ["float32", "16 bits", "8 bits", "16 bits, attention only"]
    assert table.rows[0][1:] == ["90.00", "", "", "", "7", "", ""]
    assert table.rows[1][1:] == ["90.00", "+0.00", "1.0000", "0 of 20", "10", 22, 39]
    assert table.rows[2][1:5] == ["1.00", "-89.00", "0.0001", "20 of 20"]
    assert table.rows[3][1:5] == ["80.50", "-9.50", "-", "1 of 20"]  # sacreBLEU would say 0.0001


def test_other_data_and_a_missing_float_model_are_refused(tmp_path):
    with pytest.raises(UserError, match="the float model has not translated valid; run relumt quantize"):
        compare_models(tmp_path, "valid")
    write_model(tmp_path, FLOAT, REFERENCES, 90.0)
    folder = write_model(tmp_path, "int16", REFERENCES, 90.0, quantized_model(16))
    record = json.loads((folder / QUANTIZED_RECORD).read_text())
    record["evaluations"]["valid"]["evaluation"]["setup"]["data"] = "other"
    (folder / QUANTIZED_RECORD).write_text(json.dumps(record))
    with pytest.raises(UserError, match="differ in their data"):
        compare_models(tmp_path, "valid")


def test_a_truncated_translation_is_refused(tmp_path):
    write_model(tmp_path, FLOAT, REFERENCES, 90.0)
    write_model(tmp_path, "int16", REFERENCES[:-1], 90.0, quantized_model(16))
    with pytest.raises(UserError, match=r"int16/valid\.hyp\.tok has 19 lines, .*valid\.ref\.tok has 20"):
        compare_models(tmp_path, "valid")


@pytest.mark.parametrize("changed", ["original_sha256", "checkpoint_sha256"])
def test_a_model_of_another_checkpoint_is_left_out_and_the_command_named(tmp_path, changed):
    """It translated with an earlier checkpoint of the run, or it was quantized again for another subset only."""
    write_model(tmp_path, FLOAT, REFERENCES, 90.0)
    write_model(tmp_path, "int16", REFERENCES, 90.0, quantized_model(16))
    outdated = replace(quantized_model(8, "attention"), **{changed: "old"})
    write_model(tmp_path, "int8-attention", ["x"] * 20, 1.0, outdated)
    table = compare_models(tmp_path, "valid")
    assert [row[0] for row in table.rows] == ["float32", "16 bits"]
    command = f"relumt quantize {tmp_path} --bits 8 --attention-only --subset valid"
    assert table.notes[0] == f"left out: 8 bits, attention only, of another checkpoint; repeat it with {command}"


@pytest.mark.parametrize("text", ["", "[]", '{"schema": 2}', '{"schema": 1, "evaluations": {"valid": {}}}'])
def test_a_damaged_record_is_refused_in_one_line(tmp_path, text):
    (tmp_path / QUANTIZED_FOLDER / "int16").mkdir(parents=True)
    (tmp_path / QUANTIZED_FOLDER / "int16" / QUANTIZED_RECORD).write_text(text)
    with pytest.raises(UserError, match="delete it and run relumt quantize again") as caught:
        find_quantized_records(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_translation_is_found_whatever_the_environment(tmp_path):
    folder = write_model(tmp_path, FLOAT, REFERENCES, 90.0)
    record = read_quantized_record(folder)
    setup = record.evaluations["valid"].evaluation.setup
    elsewhere = replace(setup, environment=replace(ENVIRONMENT, device=replace(CPU, name="other")))
    assert record.find(elsewhere) is record.evaluations["valid"]
    assert record.find(replace(setup, checkpoint_sha256="other")) is None
    assert record.find(replace(setup, subset="test")) is None


def write_run(folder, data_bin, **changes):
    folder.mkdir(parents=True)
    save_record(folder, replace(scored_record(), data_bin=str(data_bin), **changes))
    (folder / "checkpoints").mkdir()
    (folder / "checkpoints" / "checkpoint_best.pt").touch()
    return folder


def test_the_flags_of_the_runs_own_evaluation_are_used(tmp_path):
    run = find_evaluated_run(write_run(tmp_path / "run", write_data_bin(tmp_path / "data")), None)
    assert run.flags("valid") == {"--beam": ["5"], "--gen-subset": ["valid"]}
    assert run.model_config("int16").folder == tmp_path / "run" / "quantized" / "int16"


def test_flags_keep_values_with_spaces(tmp_path):
    flags = {"--model-overrides": "{'dropout': 0.1}", "--print-alignment": ""}
    record = with_value(scored_record(), "evaluations.test.setup.flags", flags)
    folder = write_run(tmp_path / "run", write_data_bin(tmp_path / "data"), evaluations=record.evaluations)
    found = find_evaluated_run(folder, None).flags("test")
    assert found == {"--model-overrides": ["{'dropout': 0.1}"], "--print-alignment": [], "--gen-subset": ["test"]}


def test_no_flag_of_generation_has_several_values():
    """run.json joins the values of a flag with spaces."""
    from fairseq import options

    assert {action.nargs for action in options.get_generation_parser()._actions} <= {None, 0, "?"}


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--bits", "1"], "expected 2 to 16 bits"),
        (["--bits", "17"], "expected 2 to 16 bits"),
        (["--bits", "x"], "expected a whole number"),
        (["--subset", "train"], "invalid choice"),
        (["--data", "nowhere"], "nowhere: no such folder"),
    ],
)
def test_invalid_requests_write_nothing(tmp_path, capsys, arguments, problem):
    run = write_run(tmp_path / "run", write_data_bin(tmp_path / "data"))
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(SystemExit) as ended:
        main(["quantize", str(run), *arguments])
    error = capsys.readouterr().err
    assert ended.value.code == 2 and problem in error and error.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before


def test_runs_that_cannot_be_compared_are_refused(tmp_path):
    data_bin = write_data_bin(tmp_path / "data")
    with pytest.raises(UserError, match=r"found no scores; run scripts/evaluate.sh"):
        find_evaluated_run(write_run(tmp_path / "new", data_bin, evaluations={}), None)
    run = write_run(tmp_path / "run", data_bin)
    (run / "checkpoints" / "checkpoint_best.pt").unlink()
    with pytest.raises(UserError, match="no such file, but the run was evaluated with it; evaluate the run again"):
        find_evaluated_run(run, None)
    with pytest.raises(UserError, match=r"no such file; train with scripts/train.sh"):
        find_evaluated_run(tmp_path / "nowhere", None)
