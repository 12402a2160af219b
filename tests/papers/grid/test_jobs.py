"""Jobs: their commands, outcomes, and whether they are finished."""

from dataclasses import replace
from pathlib import Path

import pytest

from relumt.analysis.record import AnalysisFile, write_analysis
from relumt.papers.experiments import Experiment
from relumt.papers.grid.jobs import create_jobs
from relumt.runs.flags import join_flag_values
from relumt.runs.record import Divergence, load_record, save_record
from relumt.runs.run_config import resolve_run_config
from tests.papers.cases import analysis
from tests.papers.test_registry import ROOT
from tests.runs.cases import scored_record, with_value, write_data_bin


def job_in(tmp_path, **changes):
    (job,) = create_jobs([Experiment("data", "model", **changes)], [3], tmp_path / "runs", tmp_path, ("--lr", "1"))
    return job


def test_a_job_is_a_script_with_its_settings(tmp_path):
    job = job_in(tmp_path, variant="slots-32", flags=("--a b", "c"), needs_analysis=True)
    runs = tmp_path / "runs"
    assert job.folder == runs / "slots-32" / "data" / "model" / "3"
    assert job.name == "slots-32/data/model/3"
    assert job.shell_command() == (
        f"RUNS={runs / 'slots-32'} SEED=3 {tmp_path}/scripts/analyze.sh data model '--a b' c --lr 1"
    )


def test_every_run_has_one_job_and_the_first_seed_comes_first(tmp_path):
    experiments = [Experiment("a", model) for model in ("x", "y", "x")]
    jobs = create_jobs(experiments, [1, 2, 1], tmp_path, tmp_path, ())
    assert [(job.experiment.model, job.seed) for job in jobs] == [("x", 1), ("y", 1), ("x", 2), ("y", 2)]
    assert {Path(job.command[0]).name for job in jobs} == {"run.sh"}


def test_outcomes(tmp_path):
    job, scored = job_in(tmp_path), scored_record()
    assert job.outcome(0) == "failed"
    for record, outcome in ((replace(scored, evaluations={}), "failed"), (scored, "done")):
        save_record(job.folder, record)
        assert [job.outcome(status) for status in (0, 1, 2)] == [outcome, "failed", "refused"]
        save_record(job.folder, replace(record, divergence=Divergence(3, "inf")))
        assert job.outcome(0) == "diverged"


@pytest.fixture
def finished(tmp_path, monkeypatch):
    """A finished job whose run was made with the real configs."""
    monkeypatch.chdir(tmp_path)
    write_data_bin(tmp_path / "data-bin" / "smoke")
    experiment, runs = Experiment("smoke", "softmax", needs_analysis=True), tmp_path / "runs"
    (job,) = create_jobs([experiment], [3], runs, ROOT, ("--lr", "1"))
    config = resolve_run_config("smoke", "softmax", 3, ROOT / "configs", runs, None)
    flags = join_flag_values(config.train_flags(["--lr", "1"]))
    record = with_value(scored_record(), "provenance.flags", flags)
    setup = replace(
        record.test_evaluation.setup,
        flags=join_flag_values(config.generate_flags([], flags)),
        data=config.data_bin.evaluation_checksum("test"),
    )
    save_record(job.folder, with_value(record, "evaluations.test.setup", setup))
    write_analysis(AnalysisFile("test", [analysis(data_sha256=setup.data)]), job.folder / "analysis.json")
    return job


SETUP, TRAINED = "evaluations.test.setup", {"evaluations": {}}


@pytest.mark.parametrize(
    ("changes", "is_finished"),
    [
        ({}, True),
        ({"provenance.flags.--lr": "2"}, False),
        ({f"{SETUP}.flags": {"--beam": "50"}}, False),  # it would be translated again
        ({f"{SETUP}.data": "x"}, False),
        ({f"{SETUP}.checkpoint": "checkpoint_average_3.pt"}, True),  # cannot be translated again without checkpoints
        ({f"{SETUP}.checkpoint_sha256": "d"}, False),  # another checkpoint was analyzed
        (TRAINED, False),
    ],
)
def test_a_run_is_finished_if_it_has_every_result_with_the_same_flags(finished, changes, is_finished):
    record = load_record(finished.folder)
    for path, value in changes.items():
        record = with_value(record, path, value)
    save_record(finished.folder, record)
    assert finished.is_finished() == is_finished


def test_a_run_is_not_finished_if_another_number_of_checkpoints_would_be_averaged(finished):
    record = load_record(finished.folder)
    save_record(finished.folder, with_value(record, f"{SETUP}.checkpoint", "checkpoint_average_3.pt"))
    (finished.folder / "checkpoints").mkdir()
    (finished.folder / "checkpoints" / "checkpoint_last.pt").touch()
    assert not finished.is_finished()


def test_a_run_whose_record_is_damaged_is_not_finished(finished):
    (finished.folder / "run.json").write_text("{")
    assert not finished.is_finished()
