"""Which runs share a column, a table or a mean over seeds: those that are equal in what the table holds fixed."""

from dataclasses import replace

import pytest

from relumt.errors import UserError
from relumt.papers.overview import overview_tables
from relumt.runs.evaluation_record import LengthPenaltyChoice
from relumt.runs.record import Initialization
from tests.papers.cases import analysis, find_experiments, make_record, render, write_run
from tests.runs.cases import with_value

FLAGS, DATA = {"--max-epoch": "4", "--arch": "reluformer"}, {"train": "a" * 64}
PRETRAINED = {"provenance.initialization": Initialization("sentences", "1", FLAGS, DATA)}


def pretrained(flags=FLAGS, data=DATA):
    return {"provenance.initialization": Initialization("sentences", "2", flags, data)}


def chosen(value, bleu=None, **settings):
    bleu = bleu or {penalty: 31.0 if penalty == value else 30.0 for penalty in ("1.0", "1.4")}
    choice = LengthPenaltyChoice("valid", **({"data": "v", "signature": "s"} | settings), bleu=bleu, chosen=value)
    setup = "evaluations.test.setup"
    return {f"{setup}.flags": {"--lenpen": value}, f"{setup}.length_penalty": choice}


TRAINING = [
    ({}, {"provenance.flags.--dropout": "0.9"}, "the flags of training"),
    ({}, {"provenance.flags.--relu-dropout": "0.1"}, "the flags of training"),
    ({}, {"provenance.environment.device.count": 8}, "the number of devices or the precision of training: [1, 'fp32']"),
    ({}, {"provenance.environment.device.precision": "bf16"}, "the number of devices or the precision of training"),
    (PRETRAINED, pretrained(FLAGS | {"--max-epoch": "12"}), "the flags of training of the initial weights"),
    (PRETRAINED, pretrained(data={"train": "b" * 64}), "the training data of the initial weights"),
]
"""Changes to one run, changes to another one, and what differs then in training."""

EVALUATION = [
    ({}, {"provenance.data": {"train": "x"}}, "the training data"),
    ({}, {"provenance.dictionaries": {"en": "d", "de": "d"}}, "the dictionaries"),
    (
        {},
        {"provenance.initialization": Initialization("first", "s")},
        "the dataset of the initial weights: new weights",
    ),
    ({}, {"evaluations.test.references_sha256": "x"}, "the test set (references)"),
    ({}, {"evaluations.test.setup.data": "x"}, "the test set (sources, references or subsets)"),
    ({}, {"evaluations.test.setup.flags": {"--beam": "4"}}, "the flags of translation"),
    ({}, {"evaluations.test.setup.checkpoint": "checkpoint_average_5.pt"}, "the checkpoint that translates"),
    ({}, {"evaluations.test.scores.bleu_tokenized.signature": "other"}, "the signature of BLEU tok"),
    (chosen("1.4"), {"evaluations.test.setup.flags": {"--lenpen": "1.4"}}, "the flags of translation"),
    (chosen("1.4"), chosen("1.4", {"1.4": 31.0}), "the flags of translation"),
    (chosen("1.4"), chosen("1.4", data="w"), "the flags of translation"),
    (chosen("1.4"), chosen("1.4", signature="t"), "the flags of translation"),
]

ALLOWED = [
    (chosen("1.4"), chosen("1.0")),
    (PRETRAINED, pretrained(FLAGS | {"--arch": "mechanism_transformer"})),
    (PRETRAINED, pretrained({}, {})),  # of an earlier version
    ({}, {"provenance.flags.--arch": "reluformer", "provenance.flags.--relu-gamma": "1"}),
    ({}, {"provenance.environment.kernels.triton": "3", "provenance.environment.device.fp32_backend": "onednn"}),
]


def write_two(runs, one, other, seed=1, name="reluformer_table4"):
    """Write a run of softmax, and one of another model, or another seed of softmax."""
    experiments = list({(one.variant, one.model): one for one in find_experiments(name).values()}.values())
    for experiment, number, changes in ((experiments[0], 1, one), (experiments[2 - seed], seed, other)):
        record = make_record(experiment, number)
        for path, value in changes.items():
            record = with_value(record, path, value)
        write_run(experiment, runs, record, analysis())


def refusal(action):
    with pytest.raises(UserError) as caught:
        action()
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(("one", "other", "message"), [*TRAINING, *EVALUATION])
def test_runs_of_two_models_that_cannot_be_compared_are_named(tmp_path, one, other, message):
    write_two(tmp_path, one, other)
    softmax, sparsemax = (f"{tmp_path}/multi30k_de_en_small/{model}/1" for model in ("softmax", "sparsemax"))
    said = refusal(lambda: render("reluformer_table4", tmp_path))
    assert said.startswith(f"{softmax} and {sparsemax} differ in {message}") and said.endswith("another RUNS folder")
    if (one, other, message) in EVALUATION:
        assert refusal(lambda: overview_tables(tmp_path, None)) == said
    else:
        assert overview_tables(tmp_path, None)


@pytest.mark.parametrize(("one", "other", "message"), TRAINING)
def test_seeds_of_one_model_need_the_same_training(tmp_path, one, other, message):
    write_two(tmp_path, one, other, seed=2)
    for action in (lambda: render("reluformer_table4", tmp_path), lambda: overview_tables(tmp_path, None)):
        assert f"softmax/2 differ in {message}" in refusal(action)


@pytest.mark.parametrize(("one", "other"), ALLOWED)
def test_what_changes_rounding_only_or_was_chosen_alike_may_differ(tmp_path, one, other):
    write_two(tmp_path, one, other)
    assert render("reluformer_table4", tmp_path) and overview_tables(tmp_path, None)


@pytest.mark.parametrize("name", ["reluformer_temperature", "rela_figure3", "reluformer_table1", "rela_table2"])
def test_every_kind_of_table_compares_its_runs(tmp_path, name):
    write_two(tmp_path, {}, {"provenance.dictionaries": {}}, name=name)
    assert "differ in the dictionaries" in refusal(lambda: render(name, tmp_path))


def test_a_run_without_the_flags_of_its_row_or_column_is_refused(tmp_path):
    experiment = find_experiments("reluformer_table5")["fairseq-init/reluformer"]
    folder = write_run(experiment, tmp_path)
    render("reluformer_table5", tmp_path)
    write_run(experiment, tmp_path, with_value(make_record(experiment), "provenance.flags.--relu-initial-score", "1"))
    assert refusal(lambda: render("reluformer_table5", tmp_path)).startswith(
        f"{folder / 'run.json'}: expected a run with --relu-initial-score 0, found --relu-initial-score 1; move it"
    )


def write_with_flags(runs, table, *names, added):
    """Write runs of a table that were started with these flags, beyond those of their experiment."""
    experiments = find_experiments(table)
    for name in names:
        extra = [*experiments[name].flags, *added]
        write_run(experiments[name], runs, replace(make_record(experiments[name]), extra_flags=extra))


TEMPERATURES = ("slots-512/ffn_softmax", "slots-512-temperature-2/ffn_softmax")
"""Two runs of a table whose rows have flags of their own."""


@pytest.mark.parametrize(
    ("table", "one", "other", "added"),
    [
        ("reluformer_temperature", *TEMPERATURES, ["--memory-temperature", "2"]),
        ("reluformer_table4", "softmax", "reluformer", ["--dropout", "0.3", "--relu-gamma", "2"]),
    ],
)
def test_a_flag_that_distinguishes_rows_or_columns_must_be_given_for_all_or_none(tmp_path, table, one, other, added):
    write_with_flags(tmp_path, table, one, added=added)
    write_with_flags(tmp_path, table, other, added=[])
    assert "differ in the flags that the user added: {" in refusal(lambda: render(table, tmp_path))


def test_flags_from_the_command_line_are_named_and_those_of_the_experiment_are_not(tmp_path):
    note = "trained with flags from the command line: --max-epoch 1 --no-epoch-checkpoints (ffn_softmax)"
    for added, expected in ((["--max-epoch", "1", "--no-epoch-checkpoints"], 1), ([], 0)):
        write_with_flags(tmp_path, "reluformer_temperature", *TEMPERATURES, added=added)
        (table,) = render("reluformer_temperature", tmp_path)
        assert table.notes.count(f"multi30k_de_en_small: {note}") == expected
        assert sum("from the command line" in line for line in table.notes) == expected


def test_a_folder_that_is_not_named_after_its_run_is_refused(tmp_path):
    folder = write_run(find_experiments("reluformer_table4")["softmax"], tmp_path)
    folder.rename(folder.with_name("1.bak"))
    assert "1.bak: expected the folder of a run, found that of" in refusal(
        lambda: render("reluformer_table4", tmp_path)
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sha256": "b"}, "analyzed a different checkpoint than the one that was scored"),
        ({"data_sha256": "b"}, "analyzed a different test set than the one that was scored"),
    ],
)
@pytest.mark.parametrize("name", ["reluformer_table1", "reluformer_table3", "rela_figure3"])
def test_an_analysis_of_something_else_is_refused(tmp_path, name, change, message):
    first, *_ = find_experiments(name).values()
    write_run(first, tmp_path, analysis=analysis(**change))
    assert message in refusal(lambda: render(name, tmp_path))


@pytest.mark.parametrize("name", ["rela_figure3", "rela_table6", "reluformer_figure4"])
def test_subwords_and_words_are_not_mixed_in_a_figure_or_table(tmp_path, name):
    first, second, *_ = find_experiments(name).values()
    write_run(first, tmp_path, analysis=analysis(unit="words"))
    (table,) = render(name, tmp_path)
    assert any("attention of words" in note for note in table.notes)
    write_run(second, tmp_path, analysis=analysis())
    message = "differ in the unit of attention: words and subwords; repeat one with relumt analyze"
    assert message in refusal(lambda: render(name, tmp_path))
