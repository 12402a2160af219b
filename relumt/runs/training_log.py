"""Read what fairseq-train logged with --log-format json; training may have been resumed any number of times."""

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

from relumt.errors import UserError
from relumt.runs.record import Divergence, TrainingSummary

PARAMETERS = re.compile(r"num\. shared model params: ([\d,]+)")
STATISTICS = re.compile(r"\| INFO \| (train_inner|train|valid) \| (\{.*\})")
WALL_KEYS = {"train_inner": "wall", "train": "train_wall"}
"""Kind of statistics → key of the seconds since fairseq started; `train_wall` of an interval is a different time."""

COMMAND_PREFIX = "$ fairseq-train"
"""Start of the line that `relumt run-record start-training` writes before each start of fairseq."""

STARTED = re.compile(r"\| training on \d+ devices")
NOT_FINITE = re.compile(r"FloatingPointError: (.*)")
"""fairseq's message if a gradient is infinite or NaN, or no loss scale of fp16 is small enough."""

INCONSISTENT_GRADIENTS = "gradients are inconsistent between workers"
"""fairseq raises the same exception if GPUs disagree. The run diverged only if one of the norms listed below that
message is not finite."""

NORM_NOT_FINITE = re.compile(r"rank +\d+ = -?(nan|inf)")


def read_training_log(path: Path) -> TrainingSummary:
    """Summarize a log file.

    Raises:
        UserError: the file is missing, or no epoch was finished.
    """
    lines = _read_lines(path)
    if not lines:
        raise UserError(f"{path}: no such log; train with scripts/train.sh")
    parameters = [match[1] for line in lines if (match := PARAMETERS.search(line))]
    epochs = list(statistics(lines, "train"))
    if not parameters or not epochs:
        raise UserError(f"{path}: the log contains no finished epoch; train again with scripts/train.sh")
    losses = [float(line["valid_loss"]) for line in statistics(lines, "valid")]
    return TrainingSummary(
        parameters=int(parameters[-1].replace(",", "")),
        tokens_per_second=tokens_per_second(lines),
        wall_seconds=wall_seconds(lines),
        updates=int(float(epochs[-1]["train_num_updates"])),
        epochs=int(epochs[-1]["epoch"]),
        best_valid_loss=min(losses, default=None),
    )


def find_divergence(path: Path) -> Divergence | None:
    """Return why the last start of fairseq-train ended without a finite gradient, None if it did not."""
    lines = _read_lines(path)
    reason, inconsistent, update = None, None, 0
    for line in lines:
        if line.startswith(COMMAND_PREFIX) or STARTED.search(line):
            reason, inconsistent = None, None
        elif match := NOT_FINITE.search(line):
            inconsistent = match[1] if INCONSISTENT_GRADIENTS in line else None
            reason = None if inconsistent else match[1]
        elif inconsistent and NORM_NOT_FINITE.search(line):
            reason = inconsistent
    for statistic in statistics(lines, "train_inner"):
        update = int(statistic["num_updates"])
    return None if reason is None else Divergence(update, reason)


def statistics(lines: Iterable[str], kind: str) -> Iterator[dict[str, Any]]:
    """Yield the objects that fairseq logs under `kind`: "train_inner" (an interval), "train" (an epoch), "valid"."""
    for line in lines:
        match = STATISTICS.search(line)
        if match and match[1] == kind:
            yield json.loads(match[2])


def tokens_per_second(lines: list[str]) -> float:
    """Return the median over the intervals, or over the epochs if training was too short for an interval to end."""
    intervals = [float(line["wps"]) for line in statistics(lines, "train_inner")]
    return median(intervals or [float(line["train_wps"]) for line in statistics(lines, "train")])


def wall_seconds(lines: Iterable[str]) -> float:
    """Sum the last logged wall time of each start of fairseq-train, which counts from zero at each start."""
    seconds_per_start = [0.0]
    for line in lines:
        if STARTED.search(line):
            seconds_per_start.append(0.0)
        elif match := STATISTICS.search(line):
            logged = json.loads(match[2])
            seconds_per_start[-1] = float(logged.get(WALL_KEYS.get(match[1], ""), seconds_per_start[-1]))
    return sum(seconds_per_start)


def _read_lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8", errors="replace").split("\n") if path.is_file() else []
