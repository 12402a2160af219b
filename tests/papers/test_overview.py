from dataclasses import replace

import pytest

from relumt.cli import main
from relumt.errors import UserError
from relumt.papers.measures import DIVERGED_NOTE
from relumt.papers.overview import dataset_tables, overview_tables
from relumt.papers.rendering import to_markdown
from relumt.runs.environment import Device
from relumt.runs.evaluation_record import LengthPenaltyChoice, SubsetScores
from relumt.runs.record import AcceptedChange, Divergence, Initialization, save_record
from tests.runs.cases import scored_record, with_value


def printed(*records):
    return "\n\n".join(map(to_markdown, dataset_tables("small", list(records))))


def test_one_row_per_model_with_its_seeds_and_the_signatures_below():
    text = printed(scored_record(model="relu", bleu=31), scored_record(bleu=30), scored_record(seed=2, bleu=32))
    assert text.splitlines() == [
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
        "- tokens/s: target tokens per second in training, on x86_64 (cpu, fp32)",
        "- trained with revision c",
        "- ±: standard deviation over seeds",
    ]


def with_choice(record, chosen, bleu=None, **settings):
    bleu = bleu or {value: 31.0 if value == chosen else 30.0 for value in ("1.0", "1.4", "1.8")}
    choice = LengthPenaltyChoice("valid", **({"data": "v", "signature": "s"} | settings), bleu=bleu, chosen=chosen)
    record = with_value(record, "evaluations.test.setup.flags", {"--beam": "5", "--lenpen": chosen})
    return with_value(record, "evaluations.test.setup.length_penalty", choice)


def test_length_penalties_may_differ_if_they_were_chosen_alike_and_are_named():
    softmax = [with_choice(scored_record(seed=seed), "1.4") for seed in (1, 2)]
    relu = [with_choice(scored_record(model="relu", seed=seed), chosen) for seed, chosen in ((1, "1.8"), (2, "1.0"))]
    records = [
        with_value(record, "evaluations.test.setup.checkpoint", "checkpoint_average_5.pt")
        for record in (*softmax, *relu)
    ]
    lines = printed(*records).splitlines()
    assert "- translated with the average of the last 5 checkpoints" in lines
    assert "- length penalty chosen by BLEU on valid from 1.0, 1.4 and 1.8: softmax 1.4; relu 1.8, 1.0" in lines


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (with_value(scored_record(model="relu"), "evaluations.test.setup.flags", {"--lenpen": "1.4"}), "the flags of"),
        (scored_record(model="relu"), "the flags of translation"),
        (with_choice(scored_record(model="relu"), "1.4", {"1.4": 31.0}), "the flags of translation"),
        (with_choice(scored_record(model="relu"), "1.4", data="w"), "the choice of --lenpen"),
        (with_choice(scored_record(model="relu"), "1.4", signature="t"), "the choice of --lenpen"),
        (
            with_value(
                with_choice(scored_record(model="relu"), "1.4"),
                "evaluations.test.setup.checkpoint",
                "checkpoint_average_5.pt",
            ),
            "the checkpoint that translates",
        ),
    ],
)
def test_length_penalties_that_were_not_chosen_alike_are_refused(other, message):
    with pytest.raises(UserError, match=f"differ in {message}"):
        dataset_tables("small", [with_choice(scored_record(), "1.4"), other])


def test_models_trained_with_other_flags_are_named():
    relu = scored_record(model="relu", flags={"--arch": "x", "--attention": "relu", "--lr": "2", "--fp16": ""})
    (note,) = (line for line in printed(scored_record(), relu).splitlines() if "flags" in line)
    assert note == (
        "- the models differ in flags of training: --lr 1 (softmax), --lr 2 (relu); no --fp16 (softmax), --fp16 (relu)"
    )
    relu = scored_record(model="relu", flags={"--attention": "relu"})
    assert "flags" not in printed(scored_record(), scored_record(seed=2), relu)


def test_flags_from_the_command_line_are_named_by_model():
    added = [replace(scored_record(seed=seed), extra_flags=["--lr", "1", "--no-x"]) for seed in (1, 2)]
    relu = replace(scored_record(model="relu"), extra_flags=["--attention-norm-weight=3"])
    note = "- trained with flags from the command line: softmax --lr 1 --no-x; relu --attention-norm-weight 3"
    assert note in printed(*added, relu, scored_record(model="sigmoid")).splitlines()


def test_accepted_changes_are_marked_and_devices_named():
    changed = replace(scored_record(model="relu"), accepted_changes=[AcceptedChange("now", ["x"])])
    changed = with_value(changed, "provenance.environment.device", Device("cuda", "H", 1, "bf16"))
    text = printed(changed, scored_record())
    assert "| relu* | 1 |" in text and "small/relu/1" in text
    assert "on H (cuda, bf16): relu; x86_64 (cpu, fp32): softmax" in text and "cannot be compared" in text


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("evaluations.test.scores.chrf.signature", "nc:7", "differ in the signature of chrF: nc:6 and nc:7"),
        ("evaluations.test.references_sha256", "b", "differ in the test set"),
        ("evaluations.test.setup.flags", {"--beam": "4"}, "differ in the flags of translation"),
        ("provenance.dictionaries.de", "e", "differ in the dictionaries"),
    ],
)
def test_runs_that_cannot_be_compared_are_named(path, value, message):
    other = with_value(scored_record(model="relu"), path, value)
    with pytest.raises(UserError, match=f"^small/softmax/1 and small/relu/1 {message}"):
        dataset_tables("small", [scored_record(), other])


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("provenance.flags.--lr", "2", "differ in the flags of training"),
        ("provenance.environment.device.count", 4, "differ in the number of devices"),
    ],
)
def test_seeds_of_one_model_need_the_same_training(path, value, message):
    other = with_value(scored_record(seed=2), path, value)
    with pytest.raises(UserError, match=f"small/softmax/1 and small/softmax/2 {message}"):
        dataset_tables("small", [scored_record(), other])


def test_pretraining_is_named_and_has_to_be_the_same():
    path = "provenance.initialization"
    one = with_value(scored_record(), path, Initialization("sentences", "1"))
    other = with_value(scored_record(model="relu"), path, Initialization("sentences", "2"))
    assert "- trained on sentences first" in printed(one, other)
    with pytest.raises(UserError, match="differ in the dataset of the initial weights: sentences and new weights"):
        printed(one, with_value(other, path, Initialization()))


def test_one_table_per_dataset_of_the_scored_runs(tmp_path, capsys):
    unscored = replace(scored_record(model="relu"), evaluations={})
    for record in (scored_record(), unscored, scored_record(dataset="large")):
        save_record(tmp_path / record.name, record)
    main(["table", "--runs", str(tmp_path)])
    output = capsys.readouterr().out
    assert output.index("**large**") < output.index("**small**")
    assert output.count("| softmax |") == 2 and "relu" not in output
    assert [table.caption for table in overview_tables(tmp_path, "small")] == ["small"]
    with pytest.raises(UserError, match="no scored run"):
        overview_tables(tmp_path, "other")


def diverged(record):
    return replace(record, divergence=Divergence(7, "gradients are Nan/Inf"), training=None, evaluations={})


def test_a_model_with_a_diverged_seed_has_dashes(tmp_path):
    worthless = scored_record(model="sigmoid", bleu=0.3)
    for record in (scored_record(), diverged(scored_record(seed=2)), scored_record(model="relu"), worthless):
        save_record(tmp_path / record.name, record)
    (table,) = overview_tables(tmp_path, None)
    assert table.rows == [
        ["relu", "1", "2,340,000", "30.00", "30.00", "30.00", "1,000"],
        ["sigmoid", "1", "2,340,000", "-", "-", "-", "-"],
        ["softmax", "1, 2", "2,340,000", "-", "-", "-", "-"],
    ]
    assert table.notes[-1] == DIVERGED_NOTE


def test_a_model_whose_seeds_all_diverged_is_shown_even_if_no_run_is_scored(tmp_path):
    save_record(tmp_path / scored_record().name, diverged(scored_record()))
    (table,) = overview_tables(tmp_path, None)
    assert table.rows == [["softmax", "1", "", "-", "-", "-", "-"]]


def test_subsets_of_the_test_set_have_dashes_for_a_model_with_a_diverged_seed():
    path = "evaluations.test.subsets"
    evaluation = scored_record().test_evaluation
    scored = with_value(scored_record(model="relu"), path, {"first": SubsetScores(4, evaluation.scores)})
    _, subsets = dataset_tables("small", [scored, diverged(scored_record())])
    assert subsets.rows == [["first", "relu", "4", "30.00", "30.00", "30.00"], ["first", "softmax", "4", "-", "-", "-"]]


def test_deeper_runs_are_found(tmp_path, capsys):
    deeper = tmp_path / "slots-32"
    save_record(deeper / scored_record().name, scored_record())
    for options, message in (
        (["--dataset", "/small"], "--dataset /small: not the name of a folder"),
        ([], f"no scored run; give --runs {deeper}"),
    ):
        with pytest.raises(SystemExit) as stopped:
            main(["table", "--runs", str(tmp_path), *options])
        assert stopped.value.code == 2 and message in capsys.readouterr().err


def test_a_copy_of_a_run_is_not_another_seed(tmp_path):
    for name in ("1", "1.bak"):
        save_record(tmp_path / "small" / "softmax" / name, scored_record())
    with pytest.raises(UserError, match=r"1\.bak: expected the folder of a run, found that of"):
        overview_tables(tmp_path, None)


def test_runs_with_different_subsets_are_not_compared():
    record = scored_record()
    part = SubsetScores(5, record.test_evaluation.scores)
    other = with_value(scored_record(model="relu"), "evaluations.test.subsets", {"part": part})
    with pytest.raises(UserError, match="the subsets of the test set"):
        dataset_tables("small", [record, other])
