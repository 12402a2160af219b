"""A run must have the flags that its row or column stands for, and flags from the command line are named."""

from dataclasses import replace

import pytest

from relumt.errors import UserError
from tests.papers.cases import find_experiments, make_record, render, write_run
from tests.runs.cases import with_value

LR_4E_3 = "lr-4e-3/softmax"


@pytest.mark.parametrize(
    ("table", "name", "flags", "message"),
    [
        ("study_search", LR_4E_3, {"--lr": "1e-3"}, "expected a run with --lr 4e-3, found --lr 1e-3; move it"),
        (
            "reluformer_table5",
            "fairseq-init/reluformer",
            {},
            "expected a run with --relu-initial-score 0 --relu-initial-gain 1, "
            "found no --relu-initial-score, no --relu-initial-gain; move it",
        ),
        (
            "reluformer_sweep",
            "gamma-0.5-norm-0.1-entropy-0.1/reluformer",
            {"--relu-gamma": "2.0", "--attention-norm-weight": "0.1", "--attention-entropy-weight": "0.1"},
            "expected a run with --relu-gamma 0.5, found --relu-gamma 2.0; move it",
        ),
    ],
)
def test_a_run_without_the_flags_of_its_row_or_column_is_refused(tmp_path, table, name, flags, message):
    experiment = find_experiments(table)[name]
    folder = write_run(experiment, tmp_path)
    render(table, tmp_path)
    write_run(experiment, tmp_path, with_value(make_record(experiment), "provenance.flags", flags))
    with pytest.raises(UserError) as caught:
        render(table, tmp_path)
    assert str(caught.value).startswith(f"{folder / 'run.json'}: {message}") and "\n" not in str(caught.value)


def test_a_run_with_a_flag_of_another_column_is_refused_in_its_own(tmp_path):
    experiments = find_experiments("study_search")
    for name in ("softmax", LR_4E_3):
        record = make_record(experiments[name], **{"--lr": "4e-3"})
        write_run(experiments[name], tmp_path, replace(record, extra_flags=["--lr", "4e-3"]))
    with pytest.raises(UserError, match=r"differ in the flags that the user added: \{'--lr': '4e-3'\} and \{\}"):
        render("study_search", tmp_path)


def test_flags_from_the_command_line_are_named_and_those_of_the_experiment_are_not(tmp_path):
    experiments = find_experiments("study_search")
    added = ["--max-epoch", "1", "--no-epoch-checkpoints"]
    for name in ("softmax", LR_4E_3):
        record = make_record(experiments[name], **{"--max-epoch": "1", "--no-epoch-checkpoints": ""})
        write_run(experiments[name], tmp_path, replace(record, extra_flags=[*experiments[name].flags, *added]))
    (table,) = render("study_search", tmp_path)
    note = "trained with flags from the command line: --max-epoch 1 --no-epoch-checkpoints"
    assert f"multi30k_de_en_small: {note}" in table.notes
    for name in ("softmax", LR_4E_3):
        write_run(experiments[name], tmp_path)
    (table,) = render("study_search", tmp_path)
    assert not any("from the command line" in note for note in table.notes)
