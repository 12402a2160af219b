import argparse
import copy

import pytest

from relumt.cli import main
from relumt.commands import table as command
from relumt.commands.table import table
from relumt.errors import UserError
from relumt.runs.record import save_record
from relumt.tables.rendering import markdown


def record(model="softmax", seed=1, bleu=30.0, dataset="small", speed=1000.4):
    signatures = {"bleu_tokenised": "tok:none", "bleu_detokenised": "tok:13a", "chrf": "nc:6"}
    scores = {name: {"score": bleu, "signature": signature} for name, signature in signatures.items()}
    return {
        "dataset": dataset,
        "model": model,
        "seed": seed,
        "device": "x86_64 (cpu, fp32)",
        "mixed": [],
        "fingerprint": {
            "flags": {"--lr": "1", "--seed": str(seed)},
            "dictionaries": {"de": "d", "en": "d"},
            "device": {"count": 1, "precision": "fp32"},
        },
        "training": {"parameters": 1234567, "tokens_per_second": speed},
        "evaluation": {"test": {"flags": {"--beam": "5"}, "references_sha256": "a", "scores": scores}},
    }


def printed(*arguments):
    return "\n\n".join(map(markdown, table(*arguments)))


def arguments(runs, dataset=None):
    of_paper = {"preset": None, "out": None, "test": None}
    return argparse.Namespace(name=None, runs=runs, dataset=dataset, format="markdown", **of_paper)


def test_one_row_a_model_with_its_seeds_and_the_signatures_below():
    text = printed("small", [record("relu", bleu=31), record(bleu=30), record(seed=2, bleu=32)])
    assert text.splitlines() == [
        "**small**",
        "",
        "| model | seeds | parameters | BLEU tok | BLEU detok | chrF | tokens/s |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
        "| relu | 1 | 1,234,567 | 31.00 | 31.00 | 31.00 | 1,000 |",
        "| softmax | 1, 2 | 1,234,567 | 31.00 ± 1.41 | 31.00 ± 1.41 | 31.00 ± 1.41 | 1,000 ± 0 |",
        "",
        "- BLEU tok: `tok:none`",
        "- BLEU detok: `tok:13a`",
        "- chrF: `nc:6`",
        "- tokens/s: target tokens a second in training, on x86_64 (cpu, fp32)",
        "- ±: standard deviation over the seeds",
    ]


def test_mixed_runs_are_marked_and_devices_named():
    mixed = record("relu") | {"mixed": [{"was": ["x"]}], "device": "H (cuda, bf16)"}
    text = printed("small", [mixed, record()])
    assert "| relu* | 1 |" in text and "small/relu/1" in text
    assert "on H (cuda, bf16); x86_64 (cpu, fp32)" in text and "do not compare" in text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda e: e["scores"]["chrf"].update(signature="nc:7"), "differ in the signature of chrF: nc:6 and nc:7"),
        (lambda e: e.update(references_sha256="b"), "differ in the test set"),
        (lambda e: e.update(flags={"--beam": "4"}), "differ in the flags of translation"),
    ],
)
def test_what_does_not_compare_is_refused_by_name(change, message):
    other = copy.deepcopy(record("relu"))
    change(other["evaluation"]["test"])
    with pytest.raises(UserError, match=f"^small/softmax/1 and small/relu/1 {message}"):
        table("small", [record(), other])


def test_seeds_of_one_model_must_be_trained_alike():
    other = record(seed=2)
    other["fingerprint"]["flags"]["--lr"] = "2"
    with pytest.raises(UserError, match="small/softmax/1 and small/softmax/2 differ in the flags of training"):
        table("small", [record(), other])


def test_another_vocabulary_and_seeds_on_another_number_of_devices_are_refused():
    other = record("relu")
    other["fingerprint"]["dictionaries"]["de"] = "e"
    with pytest.raises(UserError, match="small/softmax/1 and small/relu/1 differ in the dictionaries"):
        table("small", [record(), other])
    other = record(seed=2)
    other["fingerprint"]["device"]["count"] = 4
    with pytest.raises(UserError, match="small/softmax/1 and small/softmax/2 differ in the number of devices"):
        table("small", [record(), other])


def test_runs_that_started_from_another_are_named_and_not_mixed_with_those_that_did_not():
    runs = [record(), record("relu")]
    for run, sha in zip(runs, ("1", "2"), strict=True):
        run["fingerprint"]["start"] = {"dataset": "sentences", "sha256": sha}
    assert "- trained on sentences first" in printed("small", runs)
    runs[1]["fingerprint"]["start"] = {"dataset": ""}
    with pytest.raises(UserError, match="differ in what training started from: sentences and new weights"):
        table("small", runs)


def test_one_table_a_dataset_of_the_finished_runs(tmp_path, capsys):
    unfinished = record("relu")
    del unfinished["evaluation"]
    for one in (record(), unfinished, record(dataset="large")):
        save_record(tmp_path / one["dataset"] / one["model"] / str(one["seed"]), one)
    command.run(arguments(tmp_path))
    output = capsys.readouterr().out
    assert output.index("**large**") < output.index("**small**")
    assert output.count("| softmax |") == 2 and "relu" not in output
    command.run(arguments(tmp_path, "small"))
    assert "large" not in capsys.readouterr().out
    with pytest.raises(UserError, match="no evaluated run"):
        command.run(arguments(tmp_path, "other"))


def test_what_is_of_a_papers_table_is_refused_without_one_and_deeper_runs_are_told(tmp_path, capsys):
    folder = tmp_path / "slots-32" / "small" / "softmax" / "1"
    save_record(folder, record())
    for given, message in (
        (["--preset", "small"], "--preset is of a paper's table; name one: reluformer_table1"),
        (["--dataset", "/small"], "--dataset /small: not the name of a folder"),
        ([], f"no evaluated run; give --runs {tmp_path / 'slots-32'}"),
    ):
        with pytest.raises(SystemExit) as ended:
            main(["table", "--runs", str(tmp_path), *given])
        assert ended.value.code == 2 and message in capsys.readouterr().err


def test_a_copy_of_a_run_is_not_one_more_seed(tmp_path):
    for name in ("1", "1.bak"):
        save_record(tmp_path / "small" / "softmax" / name, record())
    with pytest.raises(UserError, match=r"1\.bak: of seed 1, which it is not named by"):
        command.run(arguments(tmp_path))
