"""A job: one run of a table, the script that executes it, and what its folder says about its state."""

import fcntl
import os
import re
import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from relumt.analysis.scored_analysis import is_analyzed
from relumt.console import print_status
from relumt.errors import UserError
from relumt.files import try_lock
from relumt.papers.experiments import Experiment, unique_experiments
from relumt.papers.runs import has_results
from relumt.runs.dataset_config import configs_folder
from relumt.runs.evaluation import is_scored_as_configured
from relumt.runs.flags import join_flag_values
from relumt.runs.launch import LOCK_FILE, statistics
from relumt.runs.record import RunRecord, find_record
from relumt.runs.run_config import RunConfig, resolve_run_config
from relumt.runs.training import TRAIN_LOG

GRID_LOG = "grid.log"
"""File in the run's folder to which its scripts' output is appended at every start."""

LIMIT = re.compile(r"[1-9][0-9]{0,15}")
"""A number of updates or epochs that ends training; fairseq takes 0 as no limit."""

LOG_TAIL = 20_000
"""Bytes at the end of train.log that contain the latest statistics."""


class JobState(StrEnum):
    """State of a job; the last four are its outcomes."""

    RUNNING = "running"
    WAITING = "waiting"
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
    def command(self) -> list[str]:
        """The script and its arguments."""
        script = self.root / "scripts" / self.experiment.script
        return [str(script), self.experiment.dataset, self.experiment.model, *self.train_flags]

    @property
    def train_flags(self) -> list[str]:
        """Flags of fairseq-train beyond those of configs/."""
        return [*self.experiment.flags, *self.extra_flags]

    @property
    def script_settings(self) -> dict[str, str]:
        """Environment variables that the script reads."""
        return {"RUNS": str(self.experiment.variant_folder(self.runs)), "SEED": str(self.seed)}

    def shell_command(self) -> str:
        """Return the command as a user would type it."""
        settings = (f"{name}={shlex.quote(value)}" for name, value in self.script_settings.items())
        return " ".join([*settings, shlex.join(self.command)])

    def environment(self, gpus: Sequence[str] = (), threads: int | None = None) -> dict[str, str]:
        """Return the environment of the script, with these GPUs and threads; a user's OMP_NUM_THREADS has priority."""
        visible_gpus = {"CUDA_VISIBLE_DEVICES": ",".join(gpus)} if gpus else {}
        default_threads = {} if threads is None else {"OMP_NUM_THREADS": str(threads)}
        return default_threads | os.environ | visible_gpus | self.script_settings

    def is_finished(self) -> bool:
        """Return whether the script would find nothing to do: the run has the same flags and every result.

        The training data and the environment are not compared, because only the script's machine knows them.
        """
        try:
            record = find_record(self.folder)
            if record is None:
                return False
            config = self._resolve_config()
            if join_flag_values(config.train_flags(self.train_flags)) != record.provenance.flags:
                return False
            if record.divergence is not None:
                return True
            if not has_results(self.experiment, record):
                return False
            if self.experiment.needs_test and not is_scored_as_configured(config, record):
                return False
            return not self.experiment.needs_analysis or is_analyzed(self.folder, record)
        except UserError:  # the script reports it
            return False

    def _resolve_config(self) -> RunConfig:
        """Return what the script would train and translate with."""
        configs = configs_folder(self.root)
        experiment, runs = self.experiment, self.experiment.variant_folder(self.runs)
        return resolve_run_config(experiment.dataset, experiment.model, self.seed, configs, runs, None)

    def outcome(self, exit_status: int) -> JobState:
        """Return the outcome of a script that ended with this status; raise UserError if run.json is unreadable."""
        if exit_status:
            return JobState.REFUSED if exit_status == UserError.exit_status else JobState.FAILED
        record = find_record(self.folder)
        if record and record.divergence:
            return JobState.DIVERGED
        return JobState.DONE if record and has_results(self.experiment, record) else JobState.FAILED

    def is_locked(self) -> bool:
        """Return whether a process holds the lock that `relumt run` takes on a run's folder."""
        path = self.folder / LOCK_FILE
        if not path.is_file():
            return False
        with path.open("a+") as lock:  # NFS grants a shared lock only on a file that is open for reading
            return not try_lock(lock.fileno(), fcntl.LOCK_SH)

    def wait_until_unlocked(self, is_stopped: Callable[[], bool] = lambda: False) -> None:
        """Wait for another process that works on the run, or until `is_stopped`; a killed grid may have left one."""
        if self.is_locked():
            print_status(f"{self.name}: another process works on this run; waiting for it")
        while self.is_locked() and not is_stopped():
            time.sleep(1)


def create_jobs(
    experiments: Sequence[Experiment], seeds: Sequence[int], runs: Path, root: Path, extra_flags: Sequence[str]
) -> list[Job]:
    """Return a job for every experiment and seed; all experiments with the first seed come first."""
    unique = unique_experiments(experiments)
    return [Job(experiment, seed, runs, root, tuple(extra_flags)) for seed in seeds for experiment in unique]


@dataclass(frozen=True)
class TrainingProgress:
    """How far a run's training has progressed.

    Attributes:
        fraction: completed part of its updates or epochs, 0 to 1.
        update: the last one that was logged.
        loss: the training loss there, None before the first.
    """

    fraction: float = 0.0
    update: int = 0
    loss: float | None = None


def read_progress(job: Job) -> TrainingProgress:
    """Return the progress that train.log and run.json report; none if they are missing or unreadable."""
    log = job.folder / TRAIN_LOG
    try:
        record = find_record(job.folder)
    except UserError:
        return TrainingProgress()
    if record is None or not log.is_file():
        return TrainingProgress()
    if record.training:
        return TrainingProgress(1.0, record.training.updates)
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - LOG_TAIL))
        lines = file.read().decode("utf-8", errors="replace").split("\n")[1:]  # the first one may be cut off
    logged = list(statistics(lines, "train_inner"))
    if not logged:
        return TrainingProgress()
    last = logged[-1]
    return TrainingProgress(training_fraction(record, last), int(last.get("num_updates", 0)), last.get("loss"))


def training_fraction(record: RunRecord, logged: dict[str, float]) -> float:
    """Return the fraction of training that is done, by the limit of updates or of epochs, whichever ends it first."""
    flags = record.provenance.flags
    fractions = [
        logged[statistic] / int(limit)
        for flag, statistic in (("--max-update", "num_updates"), ("--max-epoch", "update"))
        if statistic in logged and LIMIT.fullmatch(limit := flags.get(flag, ""))
    ]
    return min(1.0, max(fractions, default=0.0))
