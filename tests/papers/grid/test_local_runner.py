"""Jobs in parallel on this machine: GPUs, failures, and what remains when the grid is killed."""

import subprocess
import time
from itertools import pairwise
from pathlib import Path

import pytest

from relumt.papers.grid.jobs import create_jobs
from relumt.papers.grid.local_runner import LocalRunner, group_gpus, visible_gpus
from tests.papers.grid.conftest import experiments, make_status


def run(root, runs, *models, gpu_groups=([],)):
    jobs = create_jobs(experiments(*models), [1], runs, root, ())
    status = make_status(jobs)
    LocalRunner(status, gpu_groups, threads=1).run(jobs, refresh_interval=0.01)
    return {job.experiment.model: state for job, state in status.states.items()}


def test_a_failure_stops_no_other_run_and_the_log_is_appended(root, tmp_path, capsys):
    runs = tmp_path / "runs"
    broken = runs / "data" / "unreadable" / "1"
    broken.mkdir(parents=True)
    (broken / "run.json").write_text("{")
    script = root / "scripts" / "run.sh"
    script.write_text(script.read_text().replace("leaves_nothing)", "leaves_nothing | unreadable)"))
    expected = {
        "fails": "failed",
        "refused": "refused",
        "diverges": "diverged",
        "leaves_nothing": "failed",
        "unreadable": "failed",
        "works": "done",
    }
    assert run(root, runs, *expected) == expected
    assert "relumt: data/fails/1: failed (" in capsys.readouterr().err
    run(root, runs, "fails")
    log = (runs / "data" / "fails" / "1" / "grid.log").read_text()
    assert log.count("it is broken") == 2 and log.count("scripts/run.sh data fails") == 2


def test_parallel_jobs_have_gpus_of_their_own(root, tmp_path):
    runs = tmp_path / "runs"
    run(root, runs, *(f"model{n}" for n in range(5)), gpu_groups=(["0", "1"], ["2", "3"]))
    intervals = {}
    for path in runs.glob("data/*/1/calls"):
        start, end, gpus = path.read_text().split()
        intervals.setdefault(gpus, []).append((float(start), float(end)))
    assert intervals.keys() == {"0,1", "2,3"} and sum(map(len, intervals.values())) == 5
    for own_intervals in intervals.values():
        assert all(end <= start for (_, end), (start, _) in pairwise(sorted(own_intervals)))


def test_visible_gpus_have_the_names_of_the_environment_variable(monkeypatch):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert visible_gpus() == ["0", "1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,GPU-abc")
    assert visible_gpus() == ["5", "GPU-abc"]


@pytest.mark.parametrize(
    ("jobs", "num_gpus", "gpus_per_job", "jobs_per_gpu", "groups"),
    [
        (None, 0, 1, 1, [[]]),
        (3, 0, 1, 1, [[], [], []]),
        (None, 4, 1, 1, [["0"], ["1"], ["2"], ["3"]]),
        (1, 4, 2, 1, [["0", "1"]]),
        (9, 5, 2, 1, [["0", "1"], ["2", "3"]]),
        (None, 1, 2, 1, []),
        (None, 2, 1, 2, [["0"], ["1"], ["0"], ["1"]]),
        (3, 2, 1, 4, [["0"], ["1"], ["0"]]),
        (3, 0, 1, 2, []),
    ],
)
def test_gpus_are_grouped(jobs, num_gpus, gpus_per_job, jobs_per_gpu, groups):
    assert group_gpus(jobs, [str(number) for number in range(num_gpus)], gpus_per_job, jobs_per_gpu) == groups


def test_an_interrupt_ends_running_jobs_and_starts_no_others(root, tmp_path):
    runs = tmp_path / "runs"
    jobs = create_jobs(experiments("sleeps", "other"), [1], runs, root, ())
    status = make_status(jobs)
    pid_file = runs / "data" / "sleeps" / "1" / "pid"

    def interrupt_when_started():
        if pid_file.is_file() and pid_file.read_text():
            raise KeyboardInterrupt

    status.refresh = interrupt_when_started
    with pytest.raises(KeyboardInterrupt):
        LocalRunner(status, [[]], threads=1).run(jobs, refresh_interval=0.05)
    assert not is_alive(int(pid_file.read_text()))
    assert status.states[jobs[1]] == "waiting"


def test_a_run_that_another_process_works_on_is_waited_for(root, tmp_path, monkeypatch):
    runs = tmp_path / "runs"
    folder = runs / "data" / "one" / "1"
    folder.mkdir(parents=True)
    messages, script = [], f"touch {folder}/locked; until [[ -e {folder}/seen ]]; do sleep 0.02; done"
    other = subprocess.Popen(["flock", str(folder / ".lock"), "bash", "-c", script])
    wait_until((folder / "locked").exists)

    def release(message):
        messages.append(message)
        (folder / "seen").touch()

    monkeypatch.setattr("relumt.papers.grid.jobs.print_status", release)
    assert run(root, runs, "one") == {"one": "done"}
    assert other.wait(30) == 0
    assert messages == ["data/one/1: another process works on this run; waiting for it"]


def wait_until(condition, seconds=30):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def is_alive(pid):
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(")")[2].split()[0] != "Z"
