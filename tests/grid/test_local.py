"""Jobs side by side: order, GPUs, failures, and what is left when the grid is killed."""

import os
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest

from relumt.grid.jobs import Progress, jobs_of
from relumt.grid.local import Local, gpus, shares_of
from relumt.grid.states import States, clock, seconds_left
from tests.grid.conftest import cells


def run(root, runs, *models, shares=([],), seeds=(1,)):
    jobs = jobs_of(cells(*models), seeds, runs, root, ())
    states = States(jobs, quiet=False, together=len(shares))
    Local(states, shares, threads=1).run(jobs, states.table, every=0.01)
    return {job.name: state for job, state in states.of.items()}


def test_one_failure_stops_no_other_and_the_log_is_appended(root, tmp_path, capsys):
    runs = tmp_path / "runs"
    states = run(root, runs, "one", "fails", "refused", "diverges", "leaves_nothing", "two")
    assert states == {
        "data/one/1": "done",
        "data/fails/1": "failed",
        "data/refused/1": "refused",
        "data/diverges/1": "diverged",
        "data/leaves_nothing/1": "failed",
        "data/two/1": "done",
    }
    assert "relumt: data/fails/1: failed (" in capsys.readouterr().err
    run(root, runs, "fails")
    log = (runs / "data" / "fails" / "1" / "grid.log").read_text()
    assert log.count("it is broken") == 2 and log.count("scripts/run.sh data fails") == 2


def test_jobs_at_the_same_time_have_gpus_of_their_own(root, tmp_path):
    runs = tmp_path / "runs"
    run(root, runs, *(f"model{n}" for n in range(6)), shares=(["0", "1"], ["2", "3"]))
    spans = {}
    for path in runs.glob("data/*/1/calls"):
        start, end, gpus = path.read_text().split()
        spans.setdefault(gpus, []).append((float(start), float(end)))
    assert spans.keys() == {"0,1", "2,3"} and sum(map(len, spans.values())) == 6
    for of_share in spans.values():
        assert all(end <= start for (_, end), (start, _) in pairwise(sorted(of_share)))


def test_gpus_are_those_that_the_user_lets_be_seen(monkeypatch):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert gpus() == ["0", "1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,GPU-abc")
    assert gpus() == ["5", "GPU-abc"]


def test_a_run_whose_record_cannot_be_read_stops_no_other(root, tmp_path):
    runs = tmp_path / "runs"
    broken = runs / "data" / "leaves_nothing" / "1"
    broken.mkdir(parents=True)
    (broken / "run.json").write_text("{")
    assert run(root, runs, "leaves_nothing", "one") == {"data/leaves_nothing/1": "failed", "data/one/1": "done"}


@pytest.mark.parametrize(
    ("jobs", "gpus", "per_job", "shares"),
    [
        (None, 0, 1, [[]]),
        (3, 0, 1, [[], [], []]),
        (None, 4, 1, [["0"], ["1"], ["2"], ["3"]]),
        (1, 4, 2, [["0", "1"]]),
        (9, 4, 2, [["0", "1"], ["2", "3"]]),
        (None, 1, 2, []),
    ],
)
def test_how_a_machine_is_shared(jobs, gpus, per_job, shares):
    assert shares_of(jobs, [str(number) for number in range(gpus)], per_job) == shares


GRID = """
import sys
from pathlib import Path
from relumt.grid.jobs import jobs_of
from relumt.grid.local import Local
from relumt.grid.states import States
from relumt.tables.experiments import Experiment
root, runs = map(Path, sys.argv[1:])
jobs = jobs_of([Experiment("data", "sleeps")], [1], runs, root, ())
Local(States(jobs, True, 1), [[]], 1).run(jobs, lambda: None, 0.05)
"""


@pytest.mark.parametrize("with_signal", [signal.SIGKILL, signal.SIGINT])
def test_nothing_outlives_a_grid_whose_process_group_is_killed(root, tmp_path, with_signal):
    command = [sys.executable, "-c", GRID, str(root), str(tmp_path / "runs")]
    grid = subprocess.Popen(
        command, stderr=subprocess.DEVNULL, start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background job has it ignored
    )  # fmt: skip
    pid = tmp_path / "runs" / "data" / "sleeps" / "1" / "pid"
    wait_until(lambda: pid.is_file() and pid.read_text())
    started = int(pid.read_text())
    assert is_alive(started)
    os.killpg(grid.pid, with_signal)
    grid.wait(20)
    wait_until(lambda: not is_alive(started))


def test_a_run_that_another_process_works_on_is_waited_for(root, tmp_path, capsys):
    runs = tmp_path / "runs"
    folder = runs / "data" / "one" / "1"
    folder.mkdir(parents=True)
    held = subprocess.Popen(["flock", str(folder / ".lock"), "sleep", "1.5"])
    wait_until(lambda: (folder / ".lock").exists())
    time.sleep(0.2)
    assert run(root, runs, "one") == {"data/one/1": "done"}
    assert held.poll() == 0
    assert "data/one/1: another process works on this run; waiting for it" in capsys.readouterr().err


def wait_until(true, seconds=30):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_time_left_is_at_the_rate_since_this_start():
    began = time.monotonic() - 10
    assert seconds_left(began, Progress(0.5), Progress(0.75)) == pytest.approx(10, abs=0.5)
    assert seconds_left(began, Progress(0.5), Progress(0.5)) is None


def test_time_left_does_not_count_what_comes_before_training(monkeypatch, tmp_path):
    """Loading, and the training of what a run starts from."""
    (job,) = jobs_of(cells("one"), [1], tmp_path, tmp_path, ())
    states, now, done = States([job], quiet=True, together=1), [0.0], [0.0]
    monkeypatch.setattr("relumt.grid.states.time.monotonic", lambda: now[0])
    monkeypatch.setattr("relumt.grid.states.progress", lambda _: Progress(done[0]))
    states.starts(job)
    seen = []
    for now[0], done[0] in ((0.0, 0.0), (2400.0, 0.0), (2460.0, 0.1), (2520.0, 0.2)):
        seen.append(states.table().title.partition("; ")[2])
    assert seen == ["", "", "", "about 0:08:00 left"]
    assert clock(3725.2) == "1:02:05" and clock(None) == ""


def test_the_table_shows_what_runs_and_how_it_ended(root, tmp_path):
    jobs = jobs_of(cells("one", "two"), [1], tmp_path, root, ())
    states = States(jobs, quiet=True, together=1)
    states.starts(jobs[0])
    table = states.table()
    assert table.title == "1 running, 1 waiting" and table.row_count == 1
    states.ends(jobs[0], "failed")
    assert states.table().title.startswith("1 waiting, 1 failed; about ")
