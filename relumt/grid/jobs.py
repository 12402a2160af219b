"""A job: one run of a table, as the command that makes it, and how far it is by what lies in its folder."""

import fcntl
import os
import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from relumt.console import print_status
from relumt.errors import UserError
from relumt.runs.analysis_record import is_analyzed
from relumt.runs.flags import join_flag_values
from relumt.runs.record import RunRecord, find_record
from relumt.runs.run_config import RunConfig, resolve_run_config
from relumt.runs.training_log import statistics
from relumt.tables.experiments import Experiment, unique_experiments

LOG = "grid.log"
"""In the run's folder: all that its scripts print, appended at every start."""

TAIL = 20_000
"""Bytes at the end of train.log that hold the last statistics."""


@dataclass(frozen=True)
class Job:
    """A run with a seed.

    Attributes:
        experiment: what to train.
        seed: random seed.
        runs: folder of all runs.
        root: the checkout, which has scripts/.
        further: flags of fairseq-train that every job gets.
    """

    experiment: Experiment
    seed: int
    runs: Path
    root: Path
    further: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        """The run's."""
        return self.experiment.folder(self.runs, self.seed)

    @property
    def name(self) -> str:
        """What to call it: its folder below that of the runs."""
        return str(self.folder.relative_to(self.runs))

    @property
    def settings(self) -> dict[str, str]:
        """What the script takes from the environment."""
        return {"RUNS": str(self.experiment.variant_folder(self.runs)), "SEED": str(self.seed)}

    @property
    def arguments_of_training(self) -> list[str]:
        """Flags of fairseq-train beyond those of configs/."""
        return [*self.experiment.flags, *self.further]

    @property
    def command(self) -> list[str]:
        """The script and its arguments."""
        return [str(self.root / "scripts" / self.experiment.script()), *self.experiment.arguments(self.further)]

    def as_typed(self) -> str:
        """The command as one types it in a shell."""
        settings = (f"{name}={shlex.quote(value)}" for name, value in self.settings.items())
        return " ".join([*settings, shlex.join(self.command)])

    def environment(self, devices: Sequence[str] = (), threads: int | None = None) -> dict[str, str]:
        """Of its process: the GPUs that it may see and the threads that it may use, where that is to be said."""
        of_gpus = {"CUDA_VISIBLE_DEVICES": ",".join(devices)} if devices else {}
        of_threads = {} if threads is None else {"OMP_NUM_THREADS": str(threads)}
        return of_threads | os.environ | of_gpus | self.settings


def jobs_of(
    cells: Sequence[Experiment], seeds: Sequence[int], runs: Path, root: Path, further: Sequence[str]
) -> list[Job]:
    """Every cell with every seed; the first seed of all cells first, so that a table fills row by row."""
    return [Job(cell, seed, runs, root, tuple(further)) for seed in seeds for cell in unique_experiments(cells)]


@dataclass(frozen=True)
class Progress:
    """How far a run's training is.

    Attributes:
        fraction: of its updates or epochs, 0 to 1.
        update: the last that was logged.
        loss: the training loss there, None before.
    """

    fraction: float = 0.0
    update: int = 0
    loss: float | None = None


def progress(job: Job) -> Progress:
    """How far it is by its log and run.json; nothing done where there is none, or none that can be read."""
    log = job.folder / "train.log"
    try:
        record = find_record(job.folder)
    except UserError:
        record = None
    if record is None or not log.is_file():
        return Progress()
    if record.training:
        return Progress(1.0, record.training.updates)
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - TAIL))
        lines = file.read().decode("utf-8", errors="replace").split("\n")[1:]
    logged = list(statistics(lines, "train_inner"))
    if not logged:
        return Progress()
    last = logged[-1]
    return Progress(fraction(record, last), int(last["num_updates"]), float(last["loss"]))


def fraction(record: RunRecord, logged: dict[str, str]) -> float:
    """The share of training that is done: by updates or epochs, whichever ends it first."""
    flags = record.provenance.flags
    shares = [
        float(logged[of]) / float(limit)
        for flag, of in (("--max-update", "num_updates"), ("--max-epoch", "update"))
        if (limit := flags.get(flag)) and float(limit) > 0
    ]
    return min(1.0, max(shares, default=0.0))


REFUSED = 2
"""Exit status of a script that found a user's error: the run that is there is of other flags, for example."""


def outcome(job: Job, status: int) -> str:
    """What became of a job whose command ended with this status: one of the last four of STATES.

    Raises:
        UserError: its record cannot be read.
    """
    if status:
        return "refused" if status == REFUSED else "failed"
    record = find_record(job.folder)
    if record and record.divergence:
        return "diverged"
    return "done" if record and record.is_scored else "failed"


def is_finished(job: Job) -> bool:
    """Whether the scripts would find nothing to do: what lies in its folder is of its flags, scored and analysed."""
    try:
        record = find_record(job.folder)
        flags = join_flag_values(resolve_job_config(job).train_flags(job.arguments_of_training))
        if not record or flags != record.provenance.flags:
            return False
        return record.divergence is not None or (
            record.is_scored
            and (not job.experiment.needs_analysis or is_analyzed(job.folder, record))
        )
    except UserError:  # the script says why
        return False


def resolve_job_config(job: Job) -> RunConfig:
    """Return the run configuration that its script would use; raises UserError if it is invalid."""
    configs = Path(os.environ.get("CONFIGS", job.root / "configs"))
    return resolve_run_config(
        job.experiment.dataset, job.experiment.model, job.seed, configs, job.experiment.variant_folder(job.runs), None
    )


def is_held(job: Job) -> bool:
    """Whether a process has the lock that scripts/common.sh takes on a run."""
    path = job.folder / ".lock"
    if not path.is_file():
        return False
    with path.open("a+") as lock:  # NFS gives a shared lock to whoever may read
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def wait_for_others(job: Job, ended: Callable[[], bool]) -> None:
    """Until no other process works on the run, or it has `ended`: one whose grid was killed may, to a good end."""
    if is_held(job):
        print_status(f"{job.name}: another process works on this run; waiting for it")
    while is_held(job) and not ended():
        time.sleep(1)
