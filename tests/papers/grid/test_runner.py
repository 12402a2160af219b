"""Jobs in parallel, on this machine and through submitit: GPUs, failures, and what an interrupt leaves."""

import subprocess
import time
from itertools import pairwise
from pathlib import Path

import pytest

from relumt.errors import UserError
from relumt.papers.grid.runner import (
    GridProgress,
    SlurmTask,
    assign_gpus,
    create_executor,
    run_locally,
    run_on_slurm,
    visible_gpus,
)
from tests.papers.grid.conftest import make_jobs


def run(root, runs, *models, slots=([],)):
    outcomes = run_locally(make_jobs(root, runs, *models), slots, threads=1, interval=0.01)
    return {job.experiment.model: state for job, state in outcomes.items()}


def test_a_failure_stops_no_other_run_and_the_log_is_appended(root, tmp_path, capsys):
    expected = {
        "fails": "failed",
        "refused": "refused",
        "diverges": "diverged",
        "leaves_nothing": "failed",
        "works": "done",
    }
    assert run(root, tmp_path, *expected, slots=[[]] * 3) == expected
    printed = capsys.readouterr().err.splitlines()
    assert len(printed) == 2 * len(expected) and printed[0] == "relumt: data/fails/1: running (4 waiting, 1 running)"
    assert printed[-1] == "relumt: data/works/1: done (0 waiting, 0 running)"
    run(root, tmp_path, "fails")
    log = (tmp_path / "data" / "fails" / "1" / "grid.log").read_text()
    assert log.count("it is broken") == 2 and log.count("scripts/run.sh data fails") == 2


def test_parallel_jobs_have_gpus_of_their_own(root, tmp_path):
    run(root, tmp_path, *(f"model{n}" for n in range(5)), slots=(["0", "1"], ["2", "3"]))
    intervals = {}
    for path in tmp_path.glob("data/*/1/calls"):
        start, end, gpus, _ = path.read_text().split("\n", 3)
        intervals.setdefault(gpus, []).append((float(start), float(end)))
    assert intervals.keys() == {"0,1", "2,3"} and sum(map(len, intervals.values())) == 5
    for own_intervals in intervals.values():
        assert all(end <= start for (_, end), (start, _) in pairwise(sorted(own_intervals)))


def test_threads_are_shared_unless_the_user_set_them(root, tmp_path, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    run_locally(make_jobs(root, tmp_path, "one"), [[]], threads=7, interval=0.01)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    run_locally(make_jobs(root, tmp_path, "two"), [[]], threads=7, interval=0.01)
    calls = [(tmp_path / "data" / model / "1" / "calls").read_text().splitlines() for model in ("one", "two")]
    assert [call[3] for call in calls] == ["7", "3"]


@pytest.mark.parametrize(
    ("jobs", "num_gpus", "gpus_per_job", "jobs_per_gpu", "groups"),
    [
        (None, 0, 1, 1, [[]]),
        (3, 0, 1, 1, [[], [], []]),
        (None, 4, 1, 1, [["0"], ["1"], ["2"], ["3"]]),
        (1, 4, 2, 1, [["0", "1"]]),
        (9, 5, 2, 1, [["0", "1"], ["2", "3"]]),
        (None, 2, 1, 2, [["0"], ["1"], ["0"], ["1"]]),
        (3, 2, 1, 4, [["0"], ["1"], ["0"]]),
        (None, 1, 2, 1, "this machine has 1 GPUs"),
        (3, 0, 1, 2, "this machine has 0 GPUs"),
    ],
)
def test_gpus_are_grouped(monkeypatch, jobs, num_gpus, gpus_per_job, jobs_per_gpu, groups):
    monkeypatch.setattr("torch.cuda.device_count", lambda: num_gpus)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if isinstance(groups, list):
        assert assign_gpus(jobs, gpus_per_job, jobs_per_gpu) == groups
    else:
        with pytest.raises(UserError, match=groups):
            assign_gpus(jobs, gpus_per_job, jobs_per_gpu)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,GPU-abc,6,7,8,9")
    assert visible_gpus() == ["5", "GPU-abc", "6", "7", "8"][:num_gpus]


def test_an_interrupt_ends_running_jobs_and_starts_no_others(root, tmp_path, monkeypatch):
    pid_file = tmp_path / "data" / "sleeps" / "1" / "pid"

    def interrupt_when_started(seconds):
        if pid_file.is_file() and pid_file.read_text():
            raise KeyboardInterrupt

    monkeypatch.setattr("relumt.papers.grid.runner.time.sleep", interrupt_when_started)
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run(root, tmp_path, "sleeps", "other")
    assert time.monotonic() - start < 50  # it would sleep for 60 seconds
    assert not Path("/proc", pid_file.read_text().strip()).exists()
    assert not (tmp_path / "data" / "other").exists()


def test_a_run_that_another_process_works_on_is_waited_for(root, tmp_path, monkeypatch):
    folder = tmp_path / "data" / "one" / "1"
    folder.mkdir(parents=True)
    messages, script = [], f"touch {folder}/locked; until [[ -e {folder}/seen ]]; do sleep 0.02; done"
    other = subprocess.Popen(["flock", str(folder / ".lock"), "bash", "-c", script])
    end = time.monotonic() + 30
    while not (folder / "locked").exists():
        assert time.monotonic() < end
        time.sleep(0.02)

    def release(message):
        messages.append(message)
        (folder / "seen").touch()

    monkeypatch.setattr("relumt.papers.grid.runner.print_status", release)
    assert run(root, tmp_path, "one") == {"one": "done"}
    assert other.wait(30) == 0
    assert messages[0].startswith("data/one/1: waiting for another process that works on this run (1 waiting, 0 ")


def test_submitted_jobs_run_and_the_queue_may_refuse_others(root, tmp_path, monkeypatch, capsys):
    from submitit.core.utils import FailedJobError

    def submit(task):
        if task.job.experiment.model == "two":
            raise FailedJobError("sbatch: QOSMaxSubmitJobPerUserLimit")
        return submit_to_queue(task)

    monkeypatch.setattr("relumt.papers.grid.jobs.Job.is_finished", lambda job: job.experiment.model == "old")
    jobs = make_jobs(root, tmp_path / "runs", "old", "one", "refused", "two")
    executor = create_executor(tmp_path / "slurm", "local", {"timeout_min": "5"})
    submit_to_queue = executor.submit
    monkeypatch.setattr(executor, "submit", submit)
    monkeypatch.setattr("relumt.papers.grid.runner.PROGRESS_INTERVAL", 0)
    outcomes = run_on_slurm(jobs, executor, num_parallel=3, interval=0.1)
    assert [outcomes[job] for job in jobs[1:]] == ["done", "refused", "failed"]
    assert "other flags" in (jobs[2].folder / "grid.log").read_text() and not jobs[0].folder.exists()
    printed = capsys.readouterr().err
    assert "data/two/1: not submitted: sbatch: QOSMaxSubmitJobPerUserLimit" in printed
    assert "3 of 3 runs ended" in printed


def test_a_preempted_task_is_queued_again(root, tmp_path):
    from submitit.helpers import DelayedSubmission

    submission = SlurmTask(make_jobs(root, tmp_path, "one")[0]).checkpoint()
    assert isinstance(submission, DelayedSubmission) and isinstance(submission.function, SlurmTask)


def test_parameters_are_numbers_if_they_are_in_json_and_invalid_ones_are_reported(tmp_path):
    texts = {"timeout_min": "5", "mem_gb": "1.5", "name": "007", "gpus_per_node": "2"}
    found = create_executor(tmp_path, "local", texts).parameters
    assert found.items() >= {("timeout_min", 5), ("mem_gb", 1.5), ("name", "007"), ("gpus_per_node", 2)}
    for cluster, parameters, message in (
        ("local", {"timeout_min": "5", "no_such": "1"}, "submitit: .*no_such"),
        ("local", {"timeout_min": "5 minutes"}, "submitit: .*timeout_min"),
        ("slurm", {"timeout_min": "5"}, "submitit: "),
        ("slurm", {"slurm_partition": "gpu"}, "needs a time limit"),
    ):
        with pytest.raises(UserError, match=message):
            create_executor(tmp_path, cluster, parameters)


def test_the_time_left_is_that_of_runs_which_had_something_to_do(root, tmp_path, monkeypatch):
    first, second, third, _, finished = jobs = make_jobs(root, tmp_path, *"abcde")
    clock = iter([0.0, 600.0, 600.0, 600.0, 900.0, 1500.0])
    monkeypatch.setattr("relumt.papers.grid.runner.time.monotonic", lambda: next(clock))
    monkeypatch.setattr("relumt.papers.grid.jobs.Job.is_finished", lambda job: job == finished)
    progress = GridProgress(len(jobs), 2)
    progress.start(finished)
    progress.start(first)
    assert progress.describe([]) == "0 of 5 runs ended"
    progress.end(first)
    progress.end(finished)
    progress.start(second)
    progress.start(third)
    second.folder.mkdir(parents=True)
    (second.folder / "grid.log").write_text(
        "relumt: hello\nepoch 1 of 4, update 10\n  translation 1: a\n$ fairseq-generate data-bin\n\n"
    )
    # 3 runs of 10 minutes are left, two at a time; two of them have done 5 minutes each
    assert progress.describe([second]) == "2 of 5 runs ended, 10 min left; data/b/1: epoch 1 of 4, update 10"
    assert progress.seconds_left() == 300  # both take longer than expected; the last one is still to come
