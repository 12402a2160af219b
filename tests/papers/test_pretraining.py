"""Runs that start from the weights of other runs share a column only if those were trained alike."""

import pytest

from relumt.errors import UserError
from relumt.papers import get_table
from relumt.papers.overview import dataset_tables
from relumt.runs.record import Initialization
from tests.papers.cases import make_record, render, write_run
from tests.runs.cases import scored_record, with_value

FLAGS = {"--max-epoch": "4", "--arch": "reluformer"}
DATA = {"train": "a" * 64}
DIFFERENT = [
    (Initialization("sentences", "2", flags=FLAGS | {"--max-epoch": "12"}, data=DATA), "flags of training"),
    (Initialization("sentences", "2", flags=FLAGS, data={"train": "b" * 64}), "training data"),
]


def with_initialization(record, initialization):
    return with_value(record, "provenance.initialization", initialization)


def write_two_runs(runs, one, other, **second):
    """Write a run of softmax, and one of reluformer unless `second` names another seed of softmax."""
    experiments = {
        experiment.model: experiment
        for experiment in get_table("reluformer_table6").experiments("small")
        if experiment.dataset == "europarl7_small_128"
    }
    write_run(experiments["softmax"], runs, with_initialization(make_record(experiments["softmax"]), one))
    experiment = experiments["softmax" if second else "reluformer"]
    write_run(experiment, runs, with_initialization(make_record(experiment, **second), other))


@pytest.mark.parametrize("second", [{}, {"seed": 2}], ids=["another model", "another seed"])
@pytest.mark.parametrize(("other", "message"), DIFFERENT)
def test_pretraining_with_other_settings_is_refused(tmp_path, other, message, second):
    one = Initialization("sentences", "1", flags=FLAGS, data=DATA)
    write_two_runs(tmp_path, one, other, **second)
    with pytest.raises(UserError, match=f"differ in the {message} of the initial weights"):
        render("reluformer_table6", tmp_path)


@pytest.mark.parametrize(
    "other",
    [
        Initialization("sentences", "2", flags=FLAGS | {"--arch": "mechanism_transformer"}, data=DATA),
        Initialization("sentences", "2"),  # of an earlier version
    ],
)
def test_models_and_records_of_earlier_versions_may_differ(tmp_path, other):
    write_two_runs(tmp_path, Initialization("sentences", "1", flags=FLAGS, data=DATA), other)
    render("reluformer_table6", tmp_path)


@pytest.mark.parametrize(("other", "message"), DIFFERENT)
def test_seeds_in_the_table_of_all_runs_need_the_same_pretraining(other, message):
    one = Initialization("sentences", "1", flags=FLAGS, data=DATA)
    records = [with_initialization(scored_record(seed=1), one), with_initialization(scored_record(seed=2), other)]
    with pytest.raises(UserError, match=f"differ in the {message} of the initial weights"):
        dataset_tables("small", records)
