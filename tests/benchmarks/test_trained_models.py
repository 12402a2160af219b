"""The benchmarks that read trained models run on tiny ones."""

import json
import math
import runpy
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from relumt.runs.evaluation_record import LengthPenaltyChoice, LengthPenaltySearch
from relumt.runs.record import save_record
from tests.benchmarks.cases import BENCHMARKS, LENGTHS, table_rows
from tests.plugin.model.build import dictionary, write_checkpoint
from tests.runs.cases import scored_record


def test_attention_by_length(run, data, tmp_path, capsys):
    checkpoint = write_checkpoint(tmp_path / "softmax", "--attention", "softmax")
    printed = run("attention_by_length.py", checkpoint, "--data", data, "--groups", "6")
    rows = table_rows(printed)[1:]
    assert [row[1] for row in rows] == ["1–1", "3–3", "4–4", "6–6", "7–7", "9–9"]
    assert rows[0][2] == rows[0][4].rstrip(" |") == "1.000"  # a single source token has all the weight
    assert all(1 / length < float(row[2]) < 1 for row, length in zip(rows[1:], (3, 4, 6, 7, 9), strict=True))
    signed = write_checkpoint(tmp_path / "inhibitor", "--attention", "inhibitor")
    with pytest.raises(SystemExit) as end:
        run("attention_by_length.py", signed, "--data", data)
    assert end.value.code == 2 and "expected weights that are not negative" in capsys.readouterr().err


def test_calibration(run, data, tmp_path):
    checkpoint = write_checkpoint(tmp_path / "softmax", "--attention", "softmax")
    ((_, tokens, *values),) = table_rows(run("calibration.py", checkpoint, "--data", data))[1:]
    bits, accuracy, confidence, error = (float(value.rstrip(" |%")) for value in values)
    assert int(tokens) == 4 * sum(target for _, target in LENGTHS)
    assert bits == pytest.approx(math.log2(len(dictionary())), abs=1)  # an untrained model is almost uniform
    assert 0 <= accuracy <= 100 and abs(accuracy - confidence) - 0.02 <= error <= 100


def test_calibration_error(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    error = runpy.run_path(str(BENCHMARKS / "calibration.py"))["calibration_error"]
    confidence = torch.tensor([0.9, 0.9, 0.9, 0.9, 0.3, 0.3, 1.0], dtype=torch.float64)
    correct = torch.tensor([1, 1, 1, 0, 1, 0, 1], dtype=torch.float64)
    # |0.75 − 0.9| of four tokens, |0.5 − 0.3| of two, and 0 of one
    assert error(confidence, correct) == pytest.approx((4 * 0.15 + 2 * 0.2) / 7)


def test_bleu_by_length(run, data, tmp_path, capsys):
    folder, record = tmp_path / "run", replace(scored_record(), data_bin=str(data))
    save_record(folder, record)
    with pytest.raises(SystemExit) as end:
        run("bleu_by_length.py", folder)
    assert end.value.code == 2 and "expected a run whose --lenpen was chosen" in capsys.readouterr().err
    choice = LengthPenaltyChoice("valid", "v", "tok:none", {"0.0": 30.0, "1.0": 31.0}, "1.0")
    setup = replace(record.test_evaluation.setup, subset="valid")
    save_record(folder, replace(record, length_penalty_search=LengthPenaltySearch(setup, choice)))
    (folder / "length_penalty").mkdir()
    # With --lenpen 1.0 the second, longer hypothesis is the best one, which is right for the short sources only.
    lines = [
        f"S-{i}\t{' '.join(['w'] * words)}\nT-{i}\ta b c {'d' if words < 5 else 'x'}\n"
        f"H-{i}\t-3\ta b\nD-{i}\t-3\ta b\nP-{i}\t-1 -1 -1\n"
        f"H-{i}\t-3.5\ta b c d\nD-{i}\t-3.5\ta b c d\nP-{i}\t-1 -1 -0.5 -0.5 -0.5\n"
        for i, words in enumerate((2, 9, 4, 7) * 6)
    ]
    (folder / "length_penalty" / "generate-valid.txt").write_text("".join(lines) + "Generate valid with beam=2: 0\n")
    printed = run("bleu_by_length.py", folder, "--groups", "2")
    assert [row[1:] for row in table_rows(printed)[1:]] == [
        ["2–4", "12", "100.00", "1.000 |"],
        ["5–9", "12", "31.95", "1.000 |"],  # (36/48 · 24/36 · 12/24 · 1/24)^(1/4), with smoothing for 0/12
    ]
    assert "tok:none" in printed


@pytest.fixture
def measure_decoding(monkeypatch, tmp_path):
    """A function that runs decoding_speed.py on models that translate nothing.

    It returns the results in the file, and whether the file is new.
    """
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import decoding_speed

    for model in ("softmax", "relu"):
        save_record(tmp_path / model, scored_record(model=model))
    loaded = SimpleNamespace(task=SimpleNamespace(dataset=lambda subset: SimpleNamespace(src_sizes=np.arange(20))))
    monkeypatch.setattr(decoding_speed, "first_run", lambda runs, dataset, model: runs / model)
    monkeypatch.setattr(decoding_speed, "load_models", lambda runs, dataset, models: dict.fromkeys(models, loaded))
    for name in ("make_translator", "make_stock_translator"):
        monkeypatch.setattr(decoding_speed, name, lambda *arguments: lambda indices: None)

    def measure(*options, models=("softmax", "relu")):
        path = tmp_path / "speeds.json"
        arguments = [tmp_path, "multi30k_de_en_small", "--json", path, "--models", *models, *options]
        monkeypatch.setattr(sys, "argv", ["decoding_speed.py", *map(str, arguments)])
        before = path.stat().st_mtime_ns if path.exists() else None
        decoding_speed.main()
        return json.loads(path.read_text()), path.stat().st_mtime_ns != before

    return measure


def test_decoding_speed_is_measured_again_with_other_settings(measure_decoding):
    assert measure_decoding("--repeats", "1")[1]
    assert not measure_decoding("--repeats", "1")[1]
    for options in (["--repeats", "2"], ["--repeats", "2", "--sample", "3"], ["--repeats", "2", "--stock"]):
        assert measure_decoding(*options)[1]
    results, is_new = measure_decoding("--repeats", "2", models=("relu", "softmax"))
    assert is_new and results["baseline"] == "relu"


def test_stock_is_named_as_the_baseline(measure_decoding):
    results, _ = measure_decoding("--stock")
    assert results["baseline"] == "stock"
    assert results["groups"][0]["relative"]["stock"] == {"pairs": 6, "median": 1, "low": 1, "high": 1}
