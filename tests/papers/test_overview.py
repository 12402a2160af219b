"""The tables of all runs, one per dataset; test_comparability.py tests which runs they refuse."""

from dataclasses import replace

import pytest

from relumt.cli import main
from relumt.errors import UserError
from relumt.papers.notes import DIVERGED_NOTE, ENVIRONMENTS_NOTE
from relumt.papers.overview import overview_tables
from relumt.papers.rendering import to_markdown
from relumt.runs.environment import Device
from relumt.runs.evaluation_record import SubsetScores
from relumt.runs.record import AcceptedChange, Divergence, Initialization, save_record
from tests.papers.test_comparability import chosen
from tests.runs.cases import scored_record, with_value

DEVICE = "- tokens/s: target tokens per second in training, on x86_64 (cpu, fp32)"


@pytest.fixture
def tables(tmp_path):
    """Return a function that writes these records and returns the tables of all runs."""

    def write(*records):
        for record in records:
            save_record(tmp_path / record.name, record)
        return overview_tables(tmp_path, None)

    return write


@pytest.fixture
def printed(tables):
    """Return a function that writes these records and returns the lines of all tables."""
    return lambda *records: "\n\n".join(map(to_markdown, tables(*records))).splitlines()


def diverged(record):
    return replace(record, divergence=Divergence(7, "gradients are Nan/Inf"), training=None, evaluations={})


def with_subset(record, name):
    subset = SubsetScores(4, record.test_evaluation.scores)
    return with_value(record, "evaluations.test.subsets", {name: subset})


def test_one_row_per_model_with_its_seeds_and_the_signatures_below(printed):
    records = (scored_record(model="relu", bleu=31), scored_record(bleu=30), scored_record(seed=2, bleu=32))
    assert printed(*records) == [
        "**small**",
        "",
        "| model | seeds | parameters | BLEU tok | BLEU detok | chrF | tokens/s |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
        "| relu | 1 | 2,340,000 | 31.00 | 31.00 | 31.00 | 1,000 |",
        "| softmax | 1, 2 | 2,340,000 | 31.00 ± 1.41 | 31.00 ± 1.41 | 31.00 ± 1.41 | 1,000 ± 0 |",
        "",
        "- BLEU tok: `tok:none`",
        "- BLEU detok: `tok:13a`",
        "- chrF: `nc:6`",
        DEVICE,
        "- trained with revision c",
        "- ±: standard deviation over seeds",
    ]


def test_notes_name_choices_flags_pretraining_devices_and_accepted_changes(printed):
    records = [scored_record(seed=1), scored_record(seed=2)]
    for model, flags in (("relu", {"--attention": "relu"}), ("sigmoid", {"--lr": "2", "--fp16": ""})):
        records.append(scored_record(model=model, flags=flags))
    for number, penalty in enumerate(("1.4", "1.4", "1.0", "1.0")):
        for path, value in chosen(penalty).items():
            records[number] = with_value(records[number], path, value)
        path = "evaluations.test.setup.checkpoint"
        records[number] = with_value(records[number], path, "checkpoint_average_5.pt")
        records[number] = with_value(records[number], "provenance.initialization", Initialization("sentences", "1"))
    records[2] = replace(records[2], accepted_changes=[AcceptedChange("now", ["x"])])
    records[2] = with_value(records[2], "provenance.environment.device", Device("cuda", "H", 1, "bf16"))
    records[3] = replace(records[3], extra_flags=["--lr", "2", "--fp16"])
    lines = printed(*records)
    assert "| relu* | 1 | 2,340,000 | 30.00 | 30.00 | 30.00 | 1,000 |" in lines
    assert lines[8:] == [
        "- BLEU tok: `tok:none`",
        "- BLEU detok: `tok:13a`",
        "- chrF: `nc:6`",
        "- translated with the average of the last 5 checkpoints",
        "- length penalty chosen by BLEU on valid from 1.0 and 1.4: relu 1.0; sigmoid 1.0; softmax 1.4",
        f"{DEVICE.removesuffix('x86_64 (cpu, fp32)')}H (cuda, bf16): relu; x86_64 (cpu, fp32): sigmoid, softmax",
        "- speeds were measured on different devices or in different precisions and cannot be compared",
        "- trained with revision c",
        "- trained with flags from the command line: --lr 2 --fp16 (sigmoid)",
        "- the models differ in flags of training: --lr 1 (relu, softmax), --lr 2 (sigmoid); "
        "no --fp16 (relu, softmax), --fp16 (sigmoid)",
        "- the runs differ in the kind of device (see run.json)",
        "- trained on sentences first",
        "- ±: standard deviation over seeds",
        f"- *: {ENVIRONMENTS_NOTE}: small/relu/1",
    ]


def test_one_table_per_dataset_of_the_scored_runs(tmp_path, capsys):
    unscored = replace(scored_record(model="relu"), evaluations={})
    for record in (scored_record(), unscored, scored_record(dataset="large")):
        save_record(tmp_path / record.name, record)
    main(["table", "--runs", str(tmp_path)])
    output = capsys.readouterr().out
    assert output.index("**large**") < output.index("**small**")
    assert output.count("| softmax |") == 2 and "relu" not in output
    assert [table.caption for table in overview_tables(tmp_path, "small")] == ["small"]
    for name in ("other", "../small", "*", "smal?"):
        with pytest.raises(UserError, match="no scored run; run relumt run first"):
            overview_tables(tmp_path, name)


def test_a_model_with_a_diverged_seed_has_dashes(tables):
    worthless = scored_record(model="sigmoid", bleu=0.3)
    ended = diverged(scored_record(model="entmax15"))
    (table,) = tables(scored_record(), diverged(scored_record(seed=2)), scored_record(model="relu"), worthless, ended)
    assert table.rows == [
        ["entmax15", "1", "", "-", "-", "-", "-"],
        ["relu", "1", "2,340,000", "30.00", "30.00", "30.00", "1,000"],
        ["sigmoid", "1", "2,340,000", "-", "-", "-", "-"],
        ["softmax", "1, 2", "2,340,000", "-", "-", "-", "-"],
    ]
    assert table.notes[-1] == DIVERGED_NOTE


def test_subsets_of_the_test_set_have_a_table_and_must_be_the_same(tables):
    _, subsets = tables(with_subset(scored_record(model="relu"), "first"), diverged(scored_record()))
    assert subsets.header == ("subset", "model", "sentences", "BLEU tok", "BLEU detok", "chrF")
    assert subsets.rows == [["first", "relu", "4", "30.00", "30.00", "30.00"], ["first", "softmax", "4", "-", "-", "-"]]
    with pytest.raises(UserError, match="the subsets of the test set"):
        tables(with_subset(scored_record(), "second"))
