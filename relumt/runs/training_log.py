"""Reads what fairseq-train logs.

Training may have been resumed any number of times. Only lines of its log that begin as fairseq's do are read: a path or
a flag may look like a part of one. Lines that a kill has cut off are skipped.
"""

import math
import re
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import msgspec

from relumt.runs.record import Divergence, TrainingSummary

STAMP = r"(?:\[\w+\]: ?)?\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \| INFO \| "
"""Start of a line of fairseq's log; with several processes, PyTorch may put [rank0]: before it."""

PARAMETERS = re.compile(STAMP + r"fairseq_cli\.train \| num\. shared model params: (\d[\d,]{0,23}) ", re.ASCII)
STATISTICS = re.compile(STAMP + r"(train_inner|train|valid) \| (\{.*\})", re.ASCII)
WALL_KEYS = {"train_inner": "wall", "train": "train_wall"}
"""Kind of statistics → key of the seconds since fairseq started; `train_wall` of an interval is a different time."""

COMMAND_PREFIX = "$ fairseq-train"
"""Start of the line that `launch.run_fairseq` writes before each start of fairseq."""

STARTED = re.compile(STAMP + r"fairseq_cli\.train \| training on \d+ devices", re.ASCII)
FINISHED = re.compile(STAMP + r"fairseq_cli\.train \| done training in ", re.ASCII)
NOT_FINITE = re.compile(r"(?:\[\w+\]: ?)?FloatingPointError: (.*)")
"""fairseq's message if a gradient is infinite or NaN, or no loss scale of fp16 is small enough."""

INCONSISTENT_GRADIENTS = "gradients are inconsistent between workers"
"""fairseq raises the same exception if GPUs disagree. The run diverged only if one of the norms listed below that
message is not finite."""

NORM_NOT_FINITE = re.compile(r"rank +\d+ = -?(nan|inf)")


@dataclass(frozen=True)
class TrainingLog:
    """What a log says of a training.

    Attributes:
        summary: of all starts of fairseq-train; None if no epoch or validation was finished.
        has_finished: whether the last start came to its end.
        divergence: why the last start ended without a finite gradient, None if it did not.
    """

    summary: TrainingSummary | None
    has_finished: bool
    divergence: Divergence | None


def read_training_log(path: Path) -> TrainingLog:
    """Read a log file; one that is missing is empty.

    The last epoch may have a validation only: training can be killed after its last checkpoint, before it logs the end.
    The speed is that of the intervals, or of the epochs if training was too short for an interval to end.
    """
    parameters = updates = epochs = reason = inconsistent = None
    speeds: dict[str, list[float]] = {"wps": [], "train_wps": []}
    seconds, losses, last_update, has_finished = [0.0], [], 0, False
    text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    for line in text.split("\n"):
        if line.startswith(COMMAND_PREFIX):
            reason = inconsistent = None
            has_finished = False
        elif match := PARAMETERS.match(line):
            parameters = int(match[1].replace(",", ""))
        elif STARTED.match(line):
            seconds.append(0.0)
        elif FINISHED.match(line):
            has_finished = True
        elif match := NOT_FINITE.match(line):
            inconsistent = match[1] if INCONSISTENT_GRADIENTS in line else None
            reason = None if inconsistent else match[1]
        elif inconsistent and NORM_NOT_FINITE.search(line):
            reason = inconsistent
        elif match := STATISTICS.match(line):
            kind, logged = match[1], finite_numbers(match[2])
            seconds[-1] = logged.get(WALL_KEYS.get(kind, ""), seconds[-1])
            last_update = int(logged.get("num_updates", last_update))
            if kind != "valid":
                for key, values in speeds.items():
                    values += [logged[key]] if key in logged else []
            elif "valid_loss" in logged:
                losses.append(logged["valid_loss"])
            if logged.keys() >= {"epoch", f"{kind}_num_updates"}:
                epochs, updates = int(logged["epoch"]), int(logged[f"{kind}_num_updates"])
    measured, summary = speeds["wps"] or speeds["train_wps"], None
    if parameters is not None and updates is not None and epochs is not None and measured:
        best = min(losses, default=None)
        summary = TrainingSummary(parameters, median(measured), sum(seconds), updates, epochs, best)
    return TrainingLog(summary, has_finished, Divergence(last_update, reason) if reason else None)


def finite_numbers(text: str) -> dict[str, float]:
    """Return the finite numbers in a JSON object, in which fairseq writes most of them as strings; {} if it is cut."""
    try:
        logged = msgspec.json.decode(text, type=dict[str, int | float | str | None])
    except (msgspec.DecodeError, ValueError, RecursionError):
        return {}
    numbers = {}
    for name, value in logged.items():
        try:
            number = float(value) if value is not None else math.nan
        except (ValueError, OverflowError):  # a word, or an integer beyond the largest float
            continue
        if math.isfinite(number):
            numbers[name] = number
    return numbers
