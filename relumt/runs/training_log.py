"""What fairseq-train's log (--log-format json) says of a training, resumed or not."""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from relumt.errors import UserError

PARAMETERS = re.compile(r"num\. shared model params: ([\d,]+)")
STATISTICS = re.compile(r"\| INFO \| (train_inner|train|valid) \| (\{.*\})")
WALL = {"train_inner": "wall", "train": "train_wall"}
"""Kind of statistics → what it calls the seconds since the start; an interval's train_wall is another time."""

START = "$ fairseq-train"
"""What the line begins with that `relumt run-record start` writes before fairseq's own."""

STARTED = re.compile(r"\| training on \d+ devices")
NOT_FINITE = re.compile(r"FloatingPointError: (.*)")
"""fairseq's last words where a gradient is infinite or NaN, or no loss scale of fp16 is small enough."""

INCONSISTENT = "gradients are inconsistent between workers"
"""In fairseq's words also where GPUs disagree; behind them stands each one's norm, and only one that is not finite
says that the run diverged."""

NORM_NOT_FINITE = re.compile(r"rank +\d+ = -?(nan|inf)")


@dataclass(frozen=True)
class TrainingLog:
    """Summary of a log.

    Attributes:
        parameters: of the model, shared ones once.
        tokens_per_second: target tokens, the median over the log's intervals, so that pauses do not count.
        wall_seconds: from the first batch's loading to the last validation, over all resumptions.
        updates, epochs: done at the end.
        best_valid_loss: the lowest; None without validation.
    """

    parameters: int
    tokens_per_second: float
    wall_seconds: float
    updates: int
    epochs: int
    best_valid_loss: float | None


def read_training_log(path: Path) -> TrainingLog:
    """Summarise a log file.

    Raises:
        UserError: it is missing, or not the log of a training that finished an epoch.
    """
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    except FileNotFoundError:
        raise UserError(f"{path}: no such log; train with scripts/train.sh") from None
    parameters = [match[1] for line in lines if (match := PARAMETERS.search(line))]
    epochs = list(statistics(lines, "train"))
    if not parameters or not epochs:
        raise UserError(f"{path}: no epoch ended in this log; train again with scripts/train.sh")
    losses = [float(line["valid_loss"]) for line in statistics(lines, "valid")]
    return TrainingLog(
        parameters=int(parameters[-1].replace(",", "")),
        tokens_per_second=tokens_per_second(lines),
        wall_seconds=wall_seconds(lines),
        updates=int(float(epochs[-1]["train_num_updates"])),
        epochs=int(epochs[-1]["epoch"]),
        best_valid_loss=min(losses, default=None),
    )


def divergence(path: Path) -> dict[str, Any] | None:
    """Where the last start of fairseq-train in a log ended for want of a finite gradient, None if it did not.

    Returns:
        update: the last that was logged, 0 if none was. reason: in fairseq's words.
    """
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n") if path.is_file() else []
    reason, inconsistent, update = None, None, 0
    for line in lines:
        if line.startswith(START) or STARTED.search(line):
            reason, inconsistent = None, None
        elif match := NOT_FINITE.search(line):
            inconsistent = match[1] if INCONSISTENT in line else None
            reason = None if inconsistent else match[1]
        elif inconsistent and NORM_NOT_FINITE.search(line):
            reason = inconsistent
    for line in statistics(lines, "train_inner"):
        update = int(line["num_updates"])
    return None if reason is None else {"update": update, "reason": reason}


def statistics(lines: Iterable[str], kind: str) -> Iterator[dict[str, Any]]:
    """The objects that fairseq logs under `kind`: "train_inner" (an interval), "train" (an epoch), "valid"."""
    for line in lines:
        match = STATISTICS.search(line)
        if match and match[1] == kind:
            yield json.loads(match[2])


def tokens_per_second(lines: list[str]) -> float:
    """Median over the intervals, or over the epochs of a training too short for an interval to end."""
    intervals = [float(line["wps"]) for line in statistics(lines, "train_inner")]
    return median(intervals or [float(line["train_wps"]) for line in statistics(lines, "train")])


def wall_seconds(lines: Iterable[str]) -> float:
    """Sum over the starts of fairseq-train of the last `wall` that it logged; fairseq counts anew at each start."""
    of_starts = [0.0]
    for line in lines:
        if STARTED.search(line):
            of_starts.append(0.0)
        elif match := STATISTICS.search(line):
            logged = json.loads(match[2])
            of_starts[-1] = float(logged.get(WALL.get(match[1], ""), of_starts[-1]))
    return sum(of_starts)
