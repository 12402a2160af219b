"""Speeds relative to softmax, as scripts in benchmarks/ write them to RUNS/TABLE-DATASET.json.

`scripts/reproduce.sh` runs these scripts.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Annotated, NotRequired, TypedDict, TypeVar

from msgspec import Meta

from relumt.errors import UserError
from relumt.json_files import read_json
from relumt.tables.context import TableContext
from relumt.tables.runs import Run

Positive = Annotated[float, Meta(gt=0, le=1e9)]
Length = Annotated[int, Meta(ge=0, le=10**9)]

MIN_REPEATS = 6
"""The fewest repeats that give a median a 95% interval: the range of five contains it with a probability of only
1 − 2/2^5 = 94%."""


class Ratio(TypedDict):
    """A speed relative to the baseline's: the median and the ends of its 95% interval, which few repeats lack."""

    median: Positive
    low: NotRequired[Positive]
    high: NotRequired[Positive]


@dataclass(frozen=True)
class Measurement:
    """How speeds were measured: what, relative to which model, on which device and by which revision of relumt.

    Files of earlier versions lack the revision.
    """

    what: str
    baseline: str
    device: str
    revision: str = field(default="unknown revision", kw_only=True)


@dataclass(frozen=True)
class RelativeSpeeds(Measurement):
    """Speeds by model."""

    relative: dict[str, Ratio]


@dataclass(frozen=True)
class TimedModels:
    """Which trained models were timed.

    Attributes:
        checkpoints: model -> SHA-256 of its checkpoint; empty in files of earlier versions.
    """

    checkpoints: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class DecodingSpeeds:
    """The part of a file of train_decode_speed.py that a table of scores shows."""

    decoding: RelativeSpeeds
    inputs: TimedModels = field(default_factory=TimedModels, kw_only=True)


@dataclass(frozen=True)
class TrainingAndDecodingSpeeds(DecodingSpeeds):
    """A file of train_decode_speed.py."""

    training: RelativeSpeeds


@dataclass(frozen=True)
class LengthGroup:
    """Speeds by model on sentences of `shortest` to `longest` source tokens."""

    shortest: Length
    longest: Length
    relative: dict[str, Ratio]


@dataclass(frozen=True)
class SpeedsByLength(Measurement):
    """A file of decoding_speed.py."""

    groups: list[LengthGroup]
    inputs: TimedModels = field(default_factory=TimedModels, kw_only=True)

    def __post_init__(self) -> None:
        if not self.groups or any(group.relative.keys() != self.groups[0].relative.keys() for group in self.groups):
            raise ValueError("expected groups with the same models")

    @property
    def models(self) -> list[str]:
        """The models that were timed."""
        return list(self.groups[0].relative)


@dataclass(frozen=True)
class FeedForwardSpeeds(Measurement):
    """A file of training.py: training speed by model."""

    throughput: dict[str, Ratio]


Speeds = TypeVar("Speeds", DecodingSpeeds, TrainingAndDecodingSpeeds, SpeedsByLength, FeedForwardSpeeds)


def speed_file(context: TableContext, dataset: str) -> Path:
    """Return the path at which the benchmark of a table writes its results."""
    return context.runs / f"{context.name}-{dataset}.json"


def read_speeds(context: TableContext, dataset: str, file_format: type[Speeds]) -> Speeds:
    """Read what a benchmark wrote; raise UserError if there is no such file or it is not valid."""
    path = speed_file(context, dataset)
    try:
        return read_json(path, file_format, f"delete it and run {context.command}")
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; measure speeds with {context.command}") from None


def require_timed_checkpoints(context: TableContext, dataset: str, timed: TimedModels, runs: Iterable[Run]) -> None:
    """Raise UserError if a model was timed whose runs have other checkpoints, as after another training.

    Args:
        context, dataset: they name the file of speeds.
        timed: what that file says of the models.
        runs: the runs of the table, of any model.
    """
    scored: dict[str, list[Run]] = {}
    for run in runs:
        if run.record.is_scored:
            scored.setdefault(run.experiment.model, []).append(run)
    for model, timed_sha256 in timed.checkpoints.items():
        own = [run.record.test_evaluation.setup.checkpoint_sha256 for run in scored.get(model, [])]
        if own and timed_sha256 not in own:
            raise UserError(
                f"{speed_file(context, dataset)}: expected the speed of {model}'s checkpoint in "
                f"{scored[model][0].folder}, found that of another checkpoint; measure again with {context.command}"
            )


def median_ratio(ratios: Sequence[float]) -> Ratio:
    """Return the median of the repeats' ratios and its 95% interval, from the order of the ratios alone.

    With fewer than MIN_REPEATS there is no interval.
    """
    from scipy.stats import quantile_test

    if len(ratios) < MIN_REPEATS:
        return {"median": median(ratios)}
    interval = quantile_test(ratios, p=0.5).confidence_interval(0.95)
    return {"median": median(ratios), "low": float(interval.low), "high": float(interval.high)}


def format_ratio(ratio: Ratio | None) -> str:
    """Return a median with its 95% interval if it has one, "" if it was not measured."""
    if ratio is None:
        return ""
    interval = f" ({ratio['low']:.2f}–{ratio['high']:.2f})" if "low" in ratio else ""
    return f"{ratio['median']:.2f}{interval}"


def describe_measurement(measured: Measurement) -> str:
    """Return how speeds were measured."""
    return (
        f"{measured.what}, relative to {measured.baseline}, on {measured.device}, {measured.revision}; "
        f"median, and 95% interval from {MIN_REPEATS} repeats on"
    )
