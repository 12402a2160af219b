"""Jobs on a cluster, through submitit: requeued when preempted, and resumed from their last checkpoint."""

import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relumt.errors import UserError
from relumt.grid.jobs import LOG, Job, is_finished, outcome
from relumt.grid.states import States

FOLDER = "slurm"
"""Below the folder of the runs: submitit's files."""


@dataclass(frozen=True)
class Submitted:
    """What a node runs: a job's command, with its output at the end of the run's grid.log."""

    job: Job

    def __call__(self) -> int:
        """Run it; returns its exit status."""
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
        UserError: submitit or Slurm is not there, or a parameter is unknown.
    """
    try:
        import submitit
    except ModuleNotFoundError:
        raise UserError("--slurm needs submitit; pip install 'relumt[slurm]'") from None
    try:
        made = submitit.AutoExecutor(folder=folder / "%j", cluster=cluster)
        made.update_parameters(**{name: number(value) for name, value in parameters.items()})
    except (RuntimeError, NameError, ValueError, TypeError) as error:
        raise UserError(f"submitit: {' '.join(str(error).split())}; see its AutoExecutor for the parameters") from None
    return made


def number(value: str) -> int | float | str:
    """A parameter's value: a number where it reads as one."""
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            pass
    return value


def submitted(job: Job, made: Any) -> Any:
    """The job, submitted; raises UserError where Slurm refuses it."""
    from submitit.core.utils import FailedJobError, FailedSubmissionError

    try:
        return made.submit(Submitted(job))
    except (FailedJobError, FailedSubmissionError) as error:
        raise UserError(f"{job.name}: not submitted: {' '.join(str(error).split())}") from None


def run(jobs: Sequence[Job], made: Any, states: States, refresh: Callable[[], None], every: float = 5.0) -> None:
    """Submit all and wait for them. Ending this early leaves them on the cluster."""
    waiting = {}
    for job in jobs:
        if is_finished(job):
            states.starts(job)
            states.ends(job, outcome(job))
        else:
            waiting[job] = submitted(job, made)
    while waiting:
        for job, of in list(waiting.items()):
            if of.state == "RUNNING" and states.of[job] == "waiting":
                states.starts(job)
            if of.done():
                del waiting[job]
                if states.of[job] == "waiting":
                    states.starts(job)
                failed = of.exception() is not None or of.result() != 0
                states.ends(job, "failed" if failed else outcome(job))
        refresh()
        time.sleep(every)
