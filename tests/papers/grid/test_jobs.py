"""Jobs: their commands, progress, outcomes, and whether they are finished."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from relumt.analysis.record import AnalysisFile, CheckpointAnalysis, write_analysis
from relumt.papers.experiments import Experiment, unique_experiments
from relumt.papers.grid.jobs import TrainingProgress, create_jobs, read_progress
from relumt.runs.flags import join_flag_values
from relumt.runs.record import Divergence, load_record, save_record
from relumt.runs.run_config import resolve_run_config
from tests.papers.test_registry import ROOT
from tests.runs.cases import scored_record, with_value, write_data_bin


def job_in(tmp_path, **changes):
    (job,) = create_jobs([Experiment("data", "model", **changes)], [3], tmp_path / "runs", tmp_path, ("--lr", "1"))
    return job


def logged(**statistics):
    logged = json.dumps({name: str(value) for name, value in statistics.items()})
    return f"2026-01-01 10:00:05 | INFO | train_inner | {logged}\n"


def test_a_job_is_a_script_with_its_settings(tmp_path):
    job = job_in(tmp_path, variant="slots-32", flags=("--a b", "c"), needs_analysis=True)
    runs = tmp_path / "runs"
    assert job.folder == runs / "slots-32" / "data" / "model" / "3"
    assert job.name == "slots-32/data/model/3"
    assert job.shell_command() == (
        f"RUNS={runs / 'slots-32'} SEED=3 {tmp_path}/scripts/analyze.sh data model '--a b' c --lr 1"
    )


def test_every_run_has_one_job_with_its_analysis_if_any_experiment_needs_it(tmp_path):
    duplicated = [Experiment("a", "x"), Experiment("a", "y"), Experiment("a", "x", needs_analysis=True)]
    jobs = create_jobs(duplicated, [1, 2], tmp_path, tmp_path, ())
    assert [(job.experiment.model, job.seed) for job in jobs] == [("x", 1), ("y", 1), ("x", 2), ("y", 2)]
    assert jobs[0].command[0].endswith("analyze.sh") and jobs[1].command[0].endswith("run.sh")


def test_a_run_whose_test_set_is_held_out_is_only_trained_unless_another_experiment_translates_it(tmp_path):
    job = job_in(tmp_path, needs_test=False)
    assert job.shell_command() == f"RUNS={tmp_path / 'runs'} SEED=3 {tmp_path}/scripts/train.sh data model --lr 1"
    held_out = [Experiment("a", "x", needs_test=False), Experiment("a", "y", needs_test=False), Experiment("a", "x")]
    jobs = create_jobs(held_out, [1], tmp_path, tmp_path, ())
    assert [Path(job.command[0]).name for job in jobs] == ["run.sh", "train.sh"]


def test_threads_that_the_user_set_are_kept(tmp_path, monkeypatch):
    job = job_in(tmp_path)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert job.environment((), 4)["OMP_NUM_THREADS"] == "4"
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    environment = job.environment(("2", "3"), 4)
    assert environment["OMP_NUM_THREADS"] == "1" and environment["CUDA_VISIBLE_DEVICES"] == "2,3"


@pytest.mark.parametrize(
    ("flags", "fraction"),
    [
        ({"--max-epoch": "4"}, 0.25),
        ({"--max-update": "1000"}, 0.5),
        ({"--max-epoch": "4", "--max-update": "1000"}, 0.5),
        ({}, 0.0),
        ({"--max-epoch": "0", "--max-update": "250"}, 1.0),
    ],
)
def test_progress_counts_to_the_limit_that_comes_first(tmp_path, flags, fraction):
    job = job_in(tmp_path)
    assert read_progress(job) == TrainingProgress()
    record = with_value(scored_record(), "provenance.flags", flags)
    save_record(job.folder, replace(record, training=None, evaluations={}))
    text = (
        "x" * 30_000
        + "\n"
        + logged(update=0.5, num_updates=250, loss=9)
        + logged(update=1.0, num_updates=500, loss=4.2)
    )
    (job.folder / "train.log").write_text(text)
    assert read_progress(job) == TrainingProgress(fraction, 500, 4.2)


def test_progress_of_a_trained_run_is_complete_whatever_its_log_says(tmp_path):
    job = job_in(tmp_path)
    save_record(job.folder, scored_record())
    (job.folder / "train.log").write_text("")
    assert read_progress(job) == TrainingProgress(1.0, 7)


def test_outcomes(tmp_path):
    job = job_in(tmp_path)
    assert job.outcome(0) == "failed"
    save_record(job.folder, scored_record())
    assert [job.outcome(status) for status in (0, 1, 2)] == ["done", "failed", "refused"]
    save_record(job.folder, replace(scored_record(), divergence=Divergence(3, "inf")))
    assert job.outcome(0) == "diverged"


def test_training_is_the_outcome_of_a_run_that_is_only_trained(tmp_path):
    job = job_in(tmp_path, needs_test=False)
    trained = replace(scored_record(), evaluations={})
    save_record(job.folder, replace(trained, training=None))
    assert job.outcome(0) == "failed"
    save_record(job.folder, trained)
    assert [job.outcome(status) for status in (0, 1, 2)] == ["done", "failed", "refused"]
    assert job_in(tmp_path).outcome(0) == "failed"
    save_record(job.folder, replace(trained, divergence=Divergence(3, "inf")))
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
    write_analysis(make_analysis("c"), job.folder / "analysis.json")
    return job


def make_analysis(checkpoint):
    found = CheckpointAnalysis("x", "x.pt", "data-bin", checkpoint, {}, "subwords", 1, 0, {}, None, {}, {})
    return AnalysisFile("test", [found])


def test_a_run_is_finished_if_it_was_scored_and_analyzed_with_the_same_flags(finished):
    assert finished.is_finished()
    assert not replace(finished, extra_flags=("--lr", "2")).is_finished()


def test_a_run_is_not_finished_if_it_would_be_translated_again(finished):
    record = load_record(finished.folder)
    save_record(finished.folder, with_value(record, "evaluations.test.setup.flags", {"--beam": "50"}))
    assert not finished.is_finished()
    save_record(finished.folder, record)
    assert finished.is_finished()
    with Path("data-bin/smoke/test.de-en.en.bin").open("ab") as file:
        file.write(b"\0")
    assert not finished.is_finished()


def test_a_run_is_not_finished_if_the_dataset_now_averages_another_number_of_checkpoints(finished):
    record = load_record(finished.folder)
    save_record(finished.folder, with_value(record, "evaluations.test.setup.checkpoint", "checkpoint_average_3.pt"))
    assert finished.is_finished()  # without checkpoints, it cannot be translated again
    (finished.folder / "checkpoints").mkdir()
    (finished.folder / "checkpoints" / "checkpoint_last.pt").touch()
    assert not finished.is_finished()


def test_a_run_that_was_only_trained_is_finished_until_its_test_set_is_needed(finished):
    record = load_record(finished.folder)
    held_out = replace(finished, experiment=Experiment("smoke", "softmax", needs_test=False))
    save_record(finished.folder, replace(record, evaluations={}))
    assert held_out.is_finished()
    assert not replace(finished, experiment=Experiment("smoke", "softmax")).is_finished()
    save_record(finished.folder, replace(record, evaluations={}, training=None))
    assert not held_out.is_finished()


def test_an_analysis_of_another_checkpoint_or_an_unreadable_record_does_not_count(finished):
    write_analysis(make_analysis("d"), finished.folder / "analysis.json")
    assert not finished.is_finished()
    (finished.folder / "run.json").write_text("{")
    assert not finished.is_finished()


@pytest.mark.parametrize("order", [1, -1])
def test_needs_of_duplicates_are_joined_in_any_order(order):
    plain, more = Experiment("a", "x", needs_test=False), Experiment("a", "x", needs_analysis=True, needs_test=True)
    (found,) = unique_experiments([plain, more][::order])
    assert found.needs_analysis and found.needs_test
