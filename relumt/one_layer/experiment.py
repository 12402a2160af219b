"""Which trainings a task needs, and how those that are missing are made."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from relumt.console import print_status
from relumt.one_layer import record
from relumt.one_layer.examples import Splits
from relumt.one_layer.record import CommonSettings, Training
from relumt.one_layer.settings import MECHANISMS, TaskPlan
from relumt.one_layer.tasks import TASKS
from relumt.one_layer.training import score, train
from relumt.runs.environment import describe_revision

SEARCH_SEED = 0
"""Seed of the trainings that choose a learning rate; repetitions have seeds from 1."""


@dataclass(frozen=True)
class Job:
    """A training that a task needs.

    Attributes:
        mechanism, seed: what is trained.
        rate: the candidate that it tries as learning rate; None for a repetition, which takes the best one.
    """

    mechanism: str
    seed: int
    rate: float | None

    def path(self, folder: Path, task: str) -> Path:
        """Return the path of its result."""
        if self.rate is None:
            return record.seed_path(folder, task, self.mechanism, self.seed)
        return record.rate_path(folder, task, self.mechanism, self.rate)


@dataclass(frozen=True)
class Experiment:
    """A task of a preset, and the folder of its results.

    Attributes:
        name: name of the task.
        plan: settings and repetitions.
        folder: folder of all results.
        data: folder of the task's data.
    """

    name: str
    plan: TaskPlan
    folder: Path
    data: Path

    def jobs(self) -> Iterator[Job]:
        """Yield all trainings in the order in which they are made: each repetition trains all mechanisms."""
        for rate in self.plan.settings.learning_rates:
            yield from (Job(mechanism, SEARCH_SEED, rate) for mechanism in MECHANISMS)
        for seed in range(1, self.plan.repetitions + 1):
            yield from (Job(mechanism, seed, None) for mechanism in MECHANISMS)

    def missing_jobs(self) -> list[Job]:
        """Return the trainings without a result; raise UserError if a result is damaged."""
        return [job for job in self.jobs() if record.read_training(job.path(self.folder, self.name)) is None]

    def check(self) -> None:
        """Check the request without reading the data.

        Raises:
            UserError: the data is missing, or the folder holds results of other settings.
        """
        record.require_settings(self.folder, self.name, self.plan.settings)
        if self.missing_jobs():
            TASKS[self.name].require_data(self.data)

    def load(self) -> Splits | None:
        """Read the data; None if nothing is missing.

        Raises:
            UserError: the data is damaged, or is not the data of the results in the folder.
        """
        if not self.missing_jobs():
            return None
        splits = TASKS[self.name].load(self.plan.settings, self.data)
        record.require_data(self.folder, self.name, splits.data)
        return splits

    def run(self, splits: Splits) -> None:
        """Make what is missing.

        Raises:
            AttemptFailedError: a training failed.
        """
        jobs = self.missing_jobs()
        common = CommonSettings(self.plan.settings, splits.data)
        record.write(record.settings_path(self.folder, self.name), common)
        for number, job in enumerate(jobs, 1):
            result = self.make(job, splits)
            record.write(job.path(self.folder, self.name), result)
            scores = ", ".join(f"{name} {value:.4g}" for name, value in (result.test or result.best_validation).items())
            print_status(
                f"{self.name}, {number} of {len(jobs)}: {job.mechanism}, seed {job.seed}, learning rate "
                f"{result.learning_rate:g}: {'validation' if result.test is None else 'test'} {scores}"
            )

    def make(self, job: Job, splits: Splits) -> Training:
        """Train, and score the test set if the job is a repetition."""
        task = TASKS[self.name]
        rate = job.rate or self.best_rate(job.mechanism)
        trained = train(task, splits, self.plan.settings, job.mechanism, rate, job.seed)
        return Training(
            self.name,
            job.mechanism,
            rate,
            job.seed,
            trained.validation,
            trained.best_epoch,
            score(task, trained.model, splits.test) if job.rate is None else None,
            sum(parameter.numel() for parameter in trained.model.parameters()),
            trained.cpu_seconds,
            datetime.now(UTC).isoformat(timespec="seconds"),
            describe_revision(),
            {name: version(name) for name in ("torch", "numpy", "relumt")},
        )

    def best_rate(self, mechanism: str) -> float:
        """Return the candidate with the best validation score; all have been tried."""
        tried = {
            rate: record.read_training(record.rate_path(self.folder, self.name, mechanism, rate))
            for rate in self.plan.settings.learning_rates
        }
        decisive = TASKS[self.name].decisive
        scores = {rate: decisive(result.best_validation) for rate, result in tried.items() if result}
        return max(scores, key=scores.__getitem__)
