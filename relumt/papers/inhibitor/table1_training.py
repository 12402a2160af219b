"""The trainings of [IN] Table 1, and the files of their results. Shapes and equations: `table1_models.py`.

Each mechanism takes the learning rate with the best validation score, and each training its epoch with the best one.
"""

import copy
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from relumt.console import print_status
from relumt.errors import AttemptFailedError, UserError
from relumt.papers.inhibitor.results import read_result, write_result
from relumt.papers.inhibitor.table1_data import Examples, Splits, load
from relumt.papers.inhibitor.table1_models import (
    AddingModel,
    DigitModel,
    ReviewModel,
    WordModel,
    accuracy,
    ctc_loss,
    edit_distances,
    squared_error,
)
from relumt.papers.inhibitor.table1_settings import MECHANISMS, TaskPlan, TaskSettings
from relumt.runs.environment import describe_revision

SEARCH_SEED = 0
"""Seed of the trainings that choose a learning rate; repetitions have seeds from 1."""
WARMUP_SHARE = 0.05
"""Share of the updates in which the learning rate rises from 0 to its peak; then it falls linearly to 0."""
MAX_GRADIENT_NORM = 1.0
SCORING_BATCH = 250


@dataclass(frozen=True)
class Task:
    """How a task is learned.

    Attributes:
        model: takes the settings, the name of a mechanism and the number of symbols.
        loss: function of outputs and targets, to train with.
        score: function of outputs and targets, metric -> value; the first metric decides.
        sign: 1 if a higher score is better, -1 if a lower one is.
    """

    model: Callable[[TaskSettings, str, int], nn.Module]
    loss: Callable[[Tensor, Tensor], Tensor]
    score: Callable[[Tensor, Tensor], dict[str, float]]
    sign: int

    def quality(self, scores: dict[str, float]) -> float:
        """Return the value of the metric that decides, such that higher is better."""
        return self.sign * next(iter(scores.values()))


LEARNED = {
    "adding": Task(AddingModel, F.mse_loss, squared_error, -1),
    "mnist": Task(DigitModel, F.cross_entropy, accuracy, 1),
    "imdb": Task(ReviewModel, F.cross_entropy, accuracy, 1),
    "iam": Task(WordModel, ctc_loss, edit_distances, -1),
}


def train(
    task: Task, splits: Splits, settings: TaskSettings, mechanism: str, rate: float, seed: int
) -> tuple[nn.Module, list[dict[str, float]], int]:
    """Train with Adam; the seed determines the initial weights, dropout and the order of examples.

    Returns:
        The model with the weights of the best epoch, the validation scores after each epoch, and the best epoch from 1.

    Raises:
        AttemptFailedError: the loss is no longer finite.
    """
    torch.manual_seed(seed)
    model = task.model(settings, mechanism, splits.num_symbols)
    order = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(model.parameters(), rate)
    num_updates = settings.epochs * math.ceil(len(splits.train) / settings.batch_size)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda update: rate_factor(update, num_updates))
    validation: list[dict[str, float]] = []
    best_epoch, best_weights = 0, model.state_dict()
    for epoch in range(1, settings.epochs + 1):
        model.train()
        for batch in splits.train.batches(settings.batch_size, order):
            loss = task.loss(model(batch.inputs), batch.targets)
            if not loss.isfinite():
                raise AttemptFailedError(
                    f"{mechanism}, learning rate {rate:g}, seed {seed}: the loss is {loss.item()} in epoch {epoch}; "
                    "remove the learning rate from relumt/papers/inhibitor/table1_settings.py"
                )
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), MAX_GRADIENT_NORM)
            optimizer.step()
            scheduler.step()
        validation.append(score(task, model, splits.valid))
        if epoch == 1 or task.quality(validation[-1]) > task.quality(validation[best_epoch - 1]):
            best_epoch, best_weights = epoch, copy.deepcopy(model.state_dict())
    model.load_state_dict(best_weights)
    return model, validation, best_epoch


def rate_factor(update: int, num_updates: int) -> float:
    """Return the factor of the peak learning rate at an update, counted from 0."""
    warmup = max(1, round(WARMUP_SHARE * num_updates))
    return min((update + 1) / warmup, (num_updates - update) / max(1, num_updates - warmup))


@torch.no_grad()
def score(task: Task, model: nn.Module, examples: Examples) -> dict[str, float]:
    """Return the scores of a model, metric -> value."""
    model.eval()
    outputs = torch.cat([model(batch.inputs) for batch in examples.batches(SCORING_BATCH)])
    return task.score(outputs, examples.targets)


@dataclass(frozen=True)
class CommonSettings:
    """What all trainings of a task have in common: sizes and recipe, and the SHA-256 of each file of data."""

    settings: TaskSettings
    data: dict[str, str]


@dataclass(frozen=True)
class Training:
    """A finished training.

    Attributes:
        task, mechanism, learning_rate, seed: what was trained.
        validation: scores of the validation set after each epoch, metric -> value.
        best_epoch: the epoch with the best validation score, whose weights were kept; counted from 1.
        test: scores of the test set, metric -> value; None if the training only served to choose a learning rate.
        num_parameters: number of parameters of the model.
        cpu_seconds: CPU time of training and validation.
        finished: time in ISO 8601, UTC.
        revision: commit of relumt, and its hash of uncommitted changes, "" for none.
        versions: package -> version.
    """

    task: str
    mechanism: str
    learning_rate: float
    seed: int
    validation: list[dict[str, float]]
    best_epoch: int
    test: dict[str, float] | None
    num_parameters: int
    cpu_seconds: float
    finished: str
    revision: str
    versions: dict[str, str]

    @property
    def best_validation(self) -> dict[str, float]:
        """Scores of the best epoch."""
        return self.validation[self.best_epoch - 1]


@dataclass(frozen=True)
class Experiment:
    """A task of a preset, and its files.

    FOLDER/TASK/settings.json              what all trainings of the task have in common
    FOLDER/TASK/MECHANISM/rate-RATE.json   a training that only serves to choose the learning rate
    FOLDER/TASK/MECHANISM/seed-SEED.json   a repetition

    Attributes:
        task: name of the task.
        plan: settings and repetitions.
        folder: FOLDER/TASK.
    """

    task: str
    plan: TaskPlan
    folder: Path

    def missing(self) -> list[tuple[str, int, float | None]]:
        """Return mechanism, seed and rate of the trainings to make; repetitions have no rate, but take the best one."""
        seeds = range(1, self.plan.repetitions + 1)
        tried = [(SEARCH_SEED, rate) for rate in self.plan.settings.learning_rates]
        wanted = [*tried, *((seed, None) for seed in seeds)]
        jobs = [(mechanism, seed, rate) for seed, rate in wanted for mechanism in MECHANISMS]
        return [job for job in jobs if read_result(self.path(*job), Training) is None]

    def path(self, mechanism: str, seed: int, rate: float | None) -> Path:
        """Return the path of a result."""
        return self.folder / mechanism / (f"seed-{seed}.json" if rate is None else f"rate-{rate:g}.json")

    def load(self, data: Path) -> Splits | None:
        """Read the data in a folder; None if no training is missing.

        Raises:
            UserError: the data is missing or damaged, or the results have other settings or data.
        """
        recorded = read_result(self.folder / "settings.json", CommonSettings)
        settings = asdict(self.plan.settings)
        if recorded:
            self.require_same(asdict(recorded.settings), settings)
        if not self.missing():
            return None
        splits = load(self.task, self.plan.settings, data)
        if recorded:
            self.require_same(recorded.data, splits.data)
        return splits

    def require_same(self, recorded: dict[str, Any], now: dict[str, Any]) -> None:
        """Raise UserError if settings or checksums differ."""
        if changed := [name for name in recorded | now if recorded.get(name) != now.get(name)]:
            raise UserError(f"{self.folder} was created with other {', '.join(changed)}; choose another --out")

    def run(self, splits: Splits) -> None:
        """Make the trainings that are missing; raise AttemptFailedError if a loss is not finite."""
        write_result(self.folder / "settings.json", CommonSettings(self.plan.settings, splits.data))
        jobs = self.missing()
        for number, (mechanism, seed, rate) in enumerate(jobs, 1):
            result = self.train(splits, mechanism, seed, rate)
            write_result(self.path(mechanism, seed, rate), result)
            scores = ", ".join(f"{name} {value:.4g}" for name, value in (result.test or result.best_validation).items())
            print_status(
                f"{self.task}, {number} of {len(jobs)}: {mechanism}, seed {seed}, learning rate "
                f"{result.learning_rate:g}: {'validation' if result.test is None else 'test'} {scores}"
            )

    def train(self, splits: Splits, mechanism: str, seed: int, rate: float | None) -> Training:
        """Train, and score the test set if it is a repetition."""
        task = LEARNED[self.task]
        own_rate = rate or self.best_rate(mechanism)
        start = time.process_time()
        model, validation, best_epoch = train(task, splits, self.plan.settings, mechanism, own_rate, seed)
        seconds = time.process_time() - start
        return Training(
            self.task,
            mechanism,
            own_rate,
            seed,
            validation,
            best_epoch,
            score(task, model, splits.test) if rate is None else None,
            sum(parameter.numel() for parameter in model.parameters()),
            seconds,
            datetime.now(UTC).isoformat(timespec="seconds"),
            describe_revision(),
            {name: version(name) for name in ("torch", "numpy", "relumt")},
        )

    def best_rate(self, mechanism: str) -> float:
        """Return the candidate with the best validation score; all have been tried."""
        rates = self.plan.settings.learning_rates
        tried = {rate: read_result(self.path(mechanism, SEARCH_SEED, rate), Training) for rate in rates}
        qualities = {rate: LEARNED[self.task].quality(one.best_validation) for rate, one in tried.items() if one}
        return max(qualities, key=qualities.__getitem__)
