"""The states of jobs, and the bars on a terminal."""

import pytest

from relumt.papers.grid.jobs import JobState, TrainingProgress, create_jobs
from tests.papers.grid.conftest import experiments, make_status


@pytest.fixture
def jobs(tmp_path):
    return create_jobs(experiments("one", "two"), [1], tmp_path, tmp_path, ())


def test_every_change_of_state_is_printed(jobs, capsys):
    status = make_status(jobs)
    status.set_state(jobs[0], JobState.RUNNING)
    status.set_state(jobs[0], JobState.FAILED)
    assert capsys.readouterr().err == (
        "relumt: data/one/1: running (1 waiting, 1 running)\nrelumt: data/one/1: failed (1 waiting, 0 running)\n"
    )
    assert status.jobs_in(JobState.FAILED) == [jobs[0]] and status.jobs_in(JobState.WAITING) == [jobs[1]]


def test_a_terminal_shows_a_bar_per_running_job(jobs, monkeypatch):
    monkeypatch.setattr("relumt.papers.grid.status.read_progress", lambda job: TrainingProgress(0.5, 70, 4.25))
    status = make_status(jobs, is_terminal=True)
    with status.display:
        status.set_state(jobs[0], JobState.RUNNING)
        status.refresh()
        assert [(task.description, task.completed) for task in status.display.tasks] == [
            ("all runs", 0.5),
            ("data/one/1", 0.5),
        ]
        status.set_state(jobs[0], JobState.DONE)
        status.refresh()
        assert [(task.description, task.completed) for task in status.display.tasks] == [("all runs", 1)]
    assert "update 70, loss 4.250" in status.display.console.file.getvalue()


def test_time_left_of_all_runs_ignores_what_earlier_starts_completed(tmp_path, monkeypatch):
    """16 of 20 runs are finished, so their scripts end within seconds. One is half finished. A run takes 2,400 s."""
    now, fraction = [0.0], [0.5]
    jobs = create_jobs(experiments(*map(str, range(20))), [1], tmp_path, tmp_path, ())
    monkeypatch.setattr("relumt.papers.grid.status.read_progress", lambda job: TrainingProgress(fraction[0]))
    status = make_status(jobs, is_terminal=True)
    status.display.get_time = lambda: now[0]
    for job in jobs[:16]:
        now[0] += 5
        status.set_state(job, JobState.RUNNING)
        status.set_state(job, JobState.DONE)
        status.refresh()
    total = status.display.tasks[0]
    assert (total.completed, total.time_remaining) == (16, None)
    status.set_state(jobs[16], JobState.RUNNING)
    for _ in range(4):
        status.refresh()
        now[0], fraction[0] = now[0] + 240, fraction[0] + 0.1
    assert total.completed == pytest.approx(16.8)
    assert total.time_remaining == pytest.approx(3.2 * 2400, abs=1)  # rich rounds up


def test_time_left_ignores_what_comes_before_training(jobs, monkeypatch):
    """Loading, training of the model that a run starts from, and updates before a restart say nothing about speed."""
    now, fraction = [0.0], [0.0]
    monkeypatch.setattr("relumt.papers.grid.status.read_progress", lambda job: TrainingProgress(fraction[0]))
    status = make_status(jobs, is_terminal=True)
    status.display.get_time = lambda: now[0]
    status.set_state(jobs[0], JobState.RUNNING)
    seconds_left = []
    for now[0], fraction[0] in ((0.0, 0.0), (2400.0, 0.0), (2460.0, 0.5), (2520.0, 0.625), (2580.0, 0.75)):
        status.refresh()
        seconds_left.append(status.display.tasks[1].time_remaining)
    assert seconds_left == [None, None, None, 180, 120]
