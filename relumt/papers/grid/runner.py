"""Run jobs in parallel: as processes on this machine, or on a Slurm cluster through submitit.

submitit's executor of local processes does not replace the former: it has no queue, its processes outlive the command,
and it would have to be installed.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any

from relumt.errors import UserError, duration, print_status
from relumt.papers.grid.jobs import Job, JobState
from relumt.runs.progress import progress_line

PROGRESS_INTERVAL = 300.0
"""Seconds between lines about the progress of all jobs, if stderr is no terminal."""

MAX_TIMEOUTS = 1000
"""How often a job that ran out of time is queued again; submitit's default is 3."""

Slots = Sequence[Sequence[str]]
"""For each job that runs at a time, the GPUs that it gets."""
Poll = Callable[[], int | None]
"""Returns the exit status of a job's script, None until it has ended."""


def run_jobs(
    jobs: Sequence[Job], slots: Slots, start: Callable[[Job, Sequence[str]], Poll], started: JobState, interval: float
) -> dict[Job, JobState]:
    """Run every job as soon as a slot is free and no other process works on its run; print every change of a state.

    Args:
        jobs: what to run.
        slots: the GPUs of each job that runs at a time.
        start: starts a job with these GPUs.
        started: its state then.
        interval: seconds until the jobs are looked at again.

    Returns:
        The outcomes.
    """
    states = dict.fromkeys(jobs, JobState.WAITING)
    waiting, free = list(jobs), list(slots)
    running: dict[Job, tuple[Poll, Sequence[str]]] = {}
    progress = GridProgress(len(jobs), len(slots))

    def set_state(job: Job, state: JobState) -> None:
        if states[job] != state:
            states[job] = state
            print_status(f"{job.name}: {state} ({len(waiting)} waiting, {len(running)} running)")

    with progress_line(sys.stderr, PROGRESS_INTERVAL) as update:
        while waiting or running:
            for job in list(waiting) if free else []:
                if job.is_locked():  # a killed grid may have left a process
                    set_state(job, JobState.LOCKED)
                elif free:
                    waiting.remove(job)
                    try:
                        running[job] = start(job, free[0]), free.pop(0)
                        progress.start(job)
                        set_state(job, started)
                    except RuntimeError as error:  # Slurm refuses it, but may take others
                        print_status(f"{job.name}: not submitted: {error}")
                        progress.end(job)
                        set_state(job, JobState.FAILED)
            for job, (poll, slot) in list(running.items()):
                exit_status = poll()
                if exit_status is not None:
                    del running[job]
                    free.append(slot)
                    progress.end(job)
                    set_state(job, job.outcome(exit_status))
            update(1 - (len(waiting) + len(running)) / len(jobs), progress.describe(list(running)), False)
            time.sleep(interval)
    return states


@dataclass
class GridProgress:
    """How many jobs have ended, and how long the others will take.

    Attributes:
        num_jobs: number of all jobs.
        num_parallel: number of jobs that run at a time.
        started: job → when it started, on the clock of `time.monotonic`; without those that found nothing to do.
        seconds: how long each job took that has ended and had something to do.
        num_ended: number of jobs that have ended.
    """

    num_jobs: int
    num_parallel: int
    started: dict[Job, float] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)
    num_ended: int = 0

    def start(self, job: Job) -> None:
        """Note that a job starts now."""
        if not job.is_finished():
            self.started[job] = time.monotonic()

    def end(self, job: Job) -> None:
        """Note that a job has ended."""
        self.num_ended += 1
        if job in self.started:
            self.seconds.append(time.monotonic() - self.started.pop(job))

    def seconds_left(self) -> float | None:
        """Return the time to the end if the other jobs take as long as those that have ended; None without any."""
        if not self.seconds:
            return None
        now, each = time.monotonic(), mean(self.seconds)
        done = sum(min(now - start, each) for start in self.started.values())
        return max((self.num_jobs - self.num_ended) * each - done, 0) / self.num_parallel

    def describe(self, running: Sequence[Job]) -> str:
        """Return how far the jobs are, with the last line of each that runs."""
        left = self.seconds_left()
        expected = f", {duration(left)} left" if left is not None else ""
        lines = [f"{job.name}: {job.last_line()}" for job in running]
        return "; ".join([f"{self.num_ended} of {self.num_jobs} runs ended{expected}", *lines])


def run_locally(jobs: Sequence[Job], slots: Slots, threads: int, interval: float = 0.2) -> dict[Job, JobState]:
    """Run jobs on this machine, each with so many CPU threads unless the user has set OMP_NUM_THREADS.

    An exception such as KeyboardInterrupt ends the running ones.
    """
    processes: list[subprocess.Popen[bytes]] = []

    def start(job: Job, gpus: Sequence[str]) -> Poll:
        visible_gpus = {"CUDA_VISIBLE_DEVICES": ",".join(gpus)} if gpus else {}
        processes.append(job.start({"OMP_NUM_THREADS": str(threads)}, visible_gpus))
        return processes[-1].poll

    try:
        return run_jobs(jobs, slots, start, JobState.RUNNING, interval)
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()


def assign_gpus(jobs: int | None, gpus_per_job: int, jobs_per_gpu: int) -> list[list[str]]:
    """Return the GPUs of each job that runs at a time, of at most `jobs`; on a CPU, without any.

    Raises:
        UserError: there are too few GPUs for one job.
    """
    gpus = visible_gpus()
    if not gpus and gpus_per_job == jobs_per_gpu == 1:
        return [[] for _ in range(jobs or 1)]
    starts = range(0, len(gpus) - gpus_per_job + 1, gpus_per_job)
    groups = [gpus[start : start + gpus_per_job] for start in starts] * jobs_per_gpu
    if not groups:
        options = "--gpus-per-job and --jobs-per-gpu"
        raise UserError(f"{options}: this machine has {len(gpus)} GPUs; give a smaller number, or neither on a CPU")
    return groups[:jobs]


def visible_gpus() -> list[str]:
    """Return the names by which CUDA_VISIBLE_DEVICES calls the GPUs that this process sees, in their order."""
    import torch

    count, names = torch.cuda.device_count(), os.environ.get("CUDA_VISIBLE_DEVICES", "")
    return names.split(",")[:count] if names else [str(number) for number in range(count)]


@dataclass(frozen=True)
class SlurmTask:
    """What a node runs: a job's script. submitit pickles it."""

    job: Job

    def __call__(self) -> int:
        """Run the script; return its exit status."""
        return self.job.start({}, {}).wait()

    def checkpoint(self) -> Any:
        """Ask submitit, which calls this before the node is taken away, to queue the task again."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)


def run_on_slurm(jobs: Sequence[Job], executor: Any, num_parallel: int, interval: float = 5.0) -> dict[Job, JobState]:
    """Run the jobs that are not finished on Slurm, at most `num_parallel` in its queue, with submitit's executor.

    An exception such as KeyboardInterrupt leaves them on the cluster.
    """

    def start(job: Job, _: Sequence[str]) -> Poll:
        submission = executor.submit(SlurmTask(job))

        def poll() -> int | None:
            if not submission.done():
                return None
            return 1 if submission.exception() else submission.result()

        return poll

    finished = {job: job.outcome(0) for job in jobs if job.is_finished()}
    print_status(f"{len(finished)} of {len(jobs)} runs are finished")
    unfinished = [job for job in jobs if job not in finished]
    slots: Slots = [[]] * num_parallel
    return finished | run_jobs(unfinished, slots, start, JobState.SUBMITTED, interval)


def create_executor(folder: Path, cluster: str, parameters: Mapping[str, str]) -> Any:
    """Return submitit's executor, "slurm" or (for tests) "local", with submitit's parameters, as numbers if they are.

    Raises:
        UserError: submitit or Slurm is missing, a parameter is unknown, or there is no time limit.
    """
    if not {"timeout_min", "slurm_time"} & parameters.keys():
        raise UserError("--slurm needs a time limit, because submitit's default is 5 minutes; add timeout_min=600")
    values: dict[str, Any] = dict(parameters)
    for name, text in parameters.items():
        with suppress(ValueError):
            values[name] = json.loads(text)
    try:
        import submitit

        executor = submitit.AutoExecutor(folder=folder / "%j", cluster=cluster, slurm_max_num_timeout=MAX_TIMEOUTS)
        executor.update_parameters(**values)
    except (RuntimeError, NameError, ValueError, TypeError, AssertionError) as error:
        message = " ".join(str(error).split())
        raise UserError(f"submitit: {message}; its AutoExecutor documents the parameters") from None
    return executor
