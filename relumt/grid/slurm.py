"""Jobs on a cluster, through submitit: requeued when preempted, and resumed from their last checkpoint."""

import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relumt.console import print_status
from relumt.errors import UserError
from relumt.grid.jobs import LOG, Job, is_finished, outcome, wait_for_others
from relumt.grid.states import States

FOLDER = "slurm"
"""Below the folder of the runs: submitit's files."""

REQUEUED = 1000
"""How often a job that ran out of time goes on in a new one; submitit's default is 3."""


@dataclass(frozen=True)
class Submitted:
    """What a node runs: a job's command, with its output at the end of the run's grid.log."""

    job: Job

    def __call__(self) -> int:
        """Run it, once no other process does; returns its exit status."""
        wait_for_others(self.job, lambda: False)
        self.job.folder.mkdir(parents=True, exist_ok=True)
        with (self.job.folder / LOG).open("ab") as log:
            return subprocess.run(
                self.job.command, env=self.job.environment(), stdout=log, stderr=log, check=False
            ).returncode

    def checkpoint(self) -> Any:
        """Told that the node is taken away: ask to be queued again; the run resumes from its last checkpoint."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)


def executor(folder: Path, cluster: str, parameters: Mapping[str, str]) -> Any:
    """submitit's executor: on Slurm ("slurm") or in processes here ("local"), with submitit's parameters.

    Raises:
        UserError: submitit or Slurm is not there, a parameter is unknown, or no time limit is given.
    """
    if cluster == "slurm" and not {"timeout_min", "slurm_time"} & set(parameters):
        raise UserError("--slurm needs a time limit, or a job has 5 minutes; give timeout_min=600, for example")
    try:
        import submitit
    except ModuleNotFoundError:
        raise UserError("--slurm needs submitit; pip install 'relumt[slurm]'") from None
    try:
        made = submitit.AutoExecutor(folder=folder / "%j", cluster=cluster, slurm_max_num_timeout=REQUEUED)
        made.update_parameters(**{name: number(value) for name, value in parameters.items()})
    except (RuntimeError, NameError, ValueError, TypeError) as error:
        raise UserError(f"submitit: {' '.join(str(error).split())}; see its AutoExecutor for the parameters") from None
    return made


def number(value: str) -> int | float | str:
    """A parameter's value: a number where it is written as Python writes one, so that "007" is a name."""
    for kind in (int, float):
        try:
            if str(kind(value)) == value and value not in ("nan", "inf"):
                return kind(value)
        except ValueError:
            pass
    return value


def submitted(job: Job, made: Any) -> Any | None:
    """The job, submitted; None where Slurm refuses it, and says why."""
    from submitit.core.utils import FailedJobError, FailedSubmissionError

    try:
        return made.submit(Submitted(job))
    except (FailedJobError, FailedSubmissionError) as error:
        print_status(f"{job.name}: not submitted: {' '.join(str(error).split())}")
        return None


def run(jobs: Sequence[Job], made: Any, states: States, refresh: Callable[[], None], every: float = 5.0) -> None:
    """Submit all and wait for them. Ending this early leaves them on the cluster."""
    waiting = {}
    for job in jobs:
        finished = is_finished(job)
        submission = None if finished else submitted(job, made)
        if submission is not None:
            waiting[job] = submission
        else:
            states.starts(job)
            states.ends(job, outcome(job, 0) if finished else "failed")
    while waiting:
        for job, of in list(waiting.items()):
            if of.state == "RUNNING" and states.of[job] == "waiting":
                states.starts(job)
            if of.done():
                del waiting[job]
                if states.of[job] == "waiting":
                    states.starts(job)
                states.ends(job, ended_as(job, of))
        refresh()
        time.sleep(every)


def ended_as(job: Job, of: Any) -> str:
    """What became of a submitted job that has ended."""
    if of.exception() is not None:
        return "failed"
    try:
        return outcome(job, of.result())
    except UserError as error:  # of this run alone: the others go on
        print_status(f"{job.name}: {error}")
        return "failed"
