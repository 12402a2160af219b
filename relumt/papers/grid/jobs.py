"""A job: one run of a table, the script that executes it, and what its folder says about its state."""

import os
import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from filelock import FileLock, Timeout

from relumt.analysis.scored_analysis import is_analyzed
from relumt.errors import UserError
from relumt.papers.experiments import Experiment
from relumt.process import start_child
from relumt.runs.dataset_config import configs_folder
from relumt.runs.evaluation import is_scored_as_configured
from relumt.runs.flags import join_flag_values
from relumt.runs.launch import LOCK_FILE
from relumt.runs.record import find_record
from relumt.runs.run_config import resolve_run_config

GRID_LOG = "grid.log"
"""File in the run's folder to which its scripts' output is appended at every start."""

LINE_LENGTH = 150
"""Characters of a line of a script's output that are shown as its progress."""

TAIL = 1 << 14
"""Bytes at the end of grid.log in which that line is looked for."""


class JobState(StrEnum):
    """State of a job; the last four are its outcomes."""

    WAITING = "waiting"
    LOCKED = "waiting for another process that works on this run"
    RUNNING = "running"
    SUBMITTED = "submitted to Slurm"
    DONE = "done"
    DIVERGED = "diverged"
    REFUSED = "refused"
    FAILED = "failed"


@dataclass(frozen=True)
class Job:
    """An experiment with one random seed.

    Attributes:
        experiment: what to train.
        seed: random seed.
        runs: folder of all runs.
        root: the checkout, which has scripts/.
        extra_flags: flags of fairseq-train that every job gets.
    """

    experiment: Experiment
    seed: int
    runs: Path
    root: Path
    extra_flags: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        """Folder of the run."""
        return self.experiment.folder(self.runs, self.seed)

    @property
    def name(self) -> str:
        """Path of the run's folder below the folder of all runs."""
        return str(self.folder.relative_to(self.runs))

    @property
    def train_flags(self) -> list[str]:
        """Flags of fairseq-train beyond those of configs/."""
        return [*self.experiment.flags, *self.extra_flags]

    @property
    def command(self) -> list[str]:
        """The script and its arguments."""
        script = self.root / "scripts" / self.experiment.script
        return [str(script), self.experiment.dataset, self.experiment.model, *self.train_flags]

    @property
    def script_settings(self) -> dict[str, str]:
        """Environment variables that the script reads."""
        return {"RUNS": str(self.experiment.variant_folder(self.runs)), "SEED": str(self.seed)}

    def shell_command(self) -> str:
        """Return the command as a user would type it."""
        settings = (f"{name}={shlex.quote(value)}" for name, value in self.script_settings.items())
        return " ".join([*settings, shlex.join(self.command)])

    def start(self, defaults: dict[str, str], settings: dict[str, str]) -> "subprocess.Popen[bytes]":
        """Start the script, with its output appended to the run's grid.log; it ends with this process.

        Args:
            defaults: environment variables that those of this process override.
            settings: environment variables that override those of this process.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / GRID_LOG).open("ab") as log:
            log.write(f"$ {self.shell_command()}\n".encode())
            log.flush()
            environment = defaults | os.environ | settings | self.script_settings
            return start_child(self.command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def last_line(self) -> str:
        """Return the last line that the script printed, except commands and sample translations; "" without one."""
        path = self.folder / GRID_LOG
        if not path.is_file():
            return ""
        with path.open("rb") as log:
            log.seek(max(0, path.stat().st_size - TAIL))
            lines = log.read().decode("utf-8", errors="replace").split("\n")
        lines = [line for line in lines if line.strip() and not line.startswith(("$ ", "  "))]
        return lines[-1][:LINE_LENGTH] if lines else ""

    def is_locked(self) -> bool:
        """Return whether a process holds the lock that `relumt run` takes on a run's folder."""
        path = self.folder / LOCK_FILE
        if not path.is_file():
            return False
        try:
            with FileLock(path, blocking=False):
                return False
        except Timeout:
            return True

    def is_finished(self) -> bool:
        """Return whether the script would find nothing to do: the run has the same flags and every result.

        The training data and the environment are not compared, because only the script's machine knows them.
        """
        experiment, runs = self.experiment, self.experiment.variant_folder(self.runs)
        try:
            record = find_record(self.folder)
            configs = configs_folder(self.root)
            config = resolve_run_config(experiment.dataset, experiment.model, self.seed, configs, runs, None)
            if record is None or record.provenance.flags != join_flag_values(config.train_flags(self.train_flags)):
                return False
            return record.divergence is not None or (
                record.is_scored
                and is_scored_as_configured(config, record)
                and (not experiment.needs_analysis or is_analyzed(self.folder, record))
            )
        except (UserError, OSError):  # the script reports it
            return False

    def outcome(self, exit_status: int) -> JobState:
        """Return the outcome of a script that ended with this status; raise UserError if run.json is unreadable."""
        if exit_status:
            return JobState.REFUSED if exit_status == UserError.exit_status else JobState.FAILED
        record = find_record(self.folder)
        if record and record.divergence:
            return JobState.DIVERGED
        return JobState.DONE if record and record.is_scored else JobState.FAILED


def create_jobs(
    experiments: Sequence[Experiment], seeds: Sequence[int], runs: Path, root: Path, extra_flags: Sequence[str]
) -> list[Job]:
    """Return a job for every experiment and seed; all experiments with the first seed come first."""
    unique = dict.fromkeys(experiments)
    return [Job(one, seed, runs, root, tuple(extra_flags)) for seed in dict.fromkeys(seeds) for one in unique]
