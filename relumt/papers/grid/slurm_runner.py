"""Run jobs on a Slurm cluster through submitit; a preempted job is queued again and resumes from its checkpoint."""

import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relumt.console import print_status
from relumt.errors import UserError
from relumt.papers.grid.jobs import GRID_LOG, Job, JobState
from relumt.papers.grid.status import GridStatus

MAX_TIMEOUTS = 1000
"""How often a job that ran out of time is queued again; submitit's default is 3."""


@dataclass(frozen=True)
class SlurmTask:
    """What a node runs: a job's script, with its output appended to the run's grid.log. submitit pickles it."""

    job: Job

    def __call__(self) -> int:
        """Run the script as soon as no other process works on the run; return its exit status."""
        self.job.wait_until_unlocked()
        self.job.folder.mkdir(parents=True, exist_ok=True)
        with (self.job.folder / GRID_LOG).open("ab") as log:
            environment = self.job.environment()
            process = subprocess.run(self.job.command, env=environment, stdout=log, stderr=log, check=False)
        return process.returncode

    def checkpoint(self) -> Any:
        """Ask submitit, which calls this before the node is taken away, to queue the task again."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)


def create_executor(folder: Path, cluster: str, parameters: Mapping[str, str]) -> Any:
    """Return submitit's executor, "slurm" or (for tests) "local", with submitit's parameters.

    Raises:
        UserError: submitit or Slurm is missing, a parameter is unknown, or there is no time limit.
    """
    if cluster == "slurm" and not {"timeout_min", "slurm_time"} & set(parameters):
        raise UserError("--slurm needs a time limit, because submitit's default is 5 minutes; add timeout_min=600")
    try:
        import submitit
    except ModuleNotFoundError:
        raise UserError("--slurm needs submitit; run pip install '.[slurm]' in the checkout") from None
    try:
        executor = submitit.AutoExecutor(folder=folder / "%j", cluster=cluster, slurm_max_num_timeout=MAX_TIMEOUTS)
        executor.update_parameters(**{name: parse_value(text) for name, text in parameters.items()})
    except (RuntimeError, NameError, ValueError, TypeError) as error:
        message = " ".join(str(error).split())
        raise UserError(f"submitit: {message}; its AutoExecutor documents the parameters") from None
    return executor


def parse_value(text: str) -> int | float | str:
    """Return a parameter as a number if Python would print the number like this, so that "007" stays a name."""
    for number_type in (int, float):
        with suppress(ValueError):
            if str(number_type(text)) == text and text not in ("nan", "inf", "-inf"):
                return number_type(text)
    return text


def run_on_slurm(jobs: Sequence[Job], executor: Any, status: GridStatus, refresh_interval: float = 5.0) -> None:
    """Submit all jobs and wait for them; an exception such as KeyboardInterrupt leaves them on the cluster."""
    submissions = {}
    for job in jobs:
        if job.is_finished():
            status.set_state(job, job.outcome(0))
        elif submission := submit(job, executor):
            submissions[job] = submission
        else:
            status.set_state(job, JobState.FAILED)
    while submissions:
        for job, submission in list(submissions.items()):
            if submission.done():
                del submissions[job]
                status.set_state(job, submission_outcome(job, submission))
            elif submission.state == "RUNNING" and status.states[job] == JobState.WAITING:
                status.set_state(job, JobState.RUNNING)
        status.refresh()
        time.sleep(refresh_interval)


def submit(job: Job, executor: Any) -> Any | None:
    """Submit a job; print Slurm's reason and return None if it refuses."""
    from submitit.core.utils import FailedJobError, FailedSubmissionError

    try:
        return executor.submit(SlurmTask(job))
    except (FailedJobError, FailedSubmissionError) as error:
        print_status(f"{job.name}: not submitted: {' '.join(str(error).split())}")
        return None


def submission_outcome(job: Job, submission: Any) -> JobState:
    """Return the outcome of a job whose submission has ended."""
    if submission.exception() is not None:
        return JobState.FAILED
    try:
        return job.outcome(submission.result())
    except UserError as error:  # concerns this run alone: the others go on
        print_status(f"{job.name}: {error}")
        return JobState.FAILED
