"""One training: Adam, the best epoch by the validation score, and scores of the test set if they are asked for."""

import copy
import math
import time
from dataclasses import dataclass

import torch
from torch import nn

from relumt.errors import AttemptFailedError
from relumt.one_layer.examples import Examples, Splits
from relumt.one_layer.settings import TaskSettings
from relumt.one_layer.tasks import Task

WARMUP_SHARE = 0.05
"""Share of the updates in which the learning rate rises from 0 to its peak; then it falls linearly to 0."""

MAX_GRADIENT_NORM = 1.0
SCORING_BATCH = 250


@dataclass(frozen=True)
class Trained:
    """What a training yields.

    Attributes:
        model: with the weights of the best epoch.
        validation: scores after each epoch, metric -> value.
        best_epoch: counted from 1.
        cpu_seconds: CPU time of training and validation.
    """

    model: nn.Module
    validation: list[dict[str, float]]
    best_epoch: int
    cpu_seconds: float


def train(task: Task, splits: Splits, settings: TaskSettings, mechanism: str, rate: float, seed: int) -> Trained:
    """Train a model; the seed determines its initial weights, dropout and the order of examples.

    Raises:
        AttemptFailedError: the loss is no longer finite.
    """
    start = time.process_time()
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
                    "remove the learning rate from relumt/one_layer/settings.py"
                )
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), MAX_GRADIENT_NORM)
            optimizer.step()
            scheduler.step()
        validation.append(score(task, model, splits.valid))
        if epoch == 1 or task.decisive(validation[-1]) > task.decisive(validation[best_epoch - 1]):
            best_epoch, best_weights = epoch, copy.deepcopy(model.state_dict())
    model.load_state_dict(best_weights)
    return Trained(model, validation, best_epoch, time.process_time() - start)


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
