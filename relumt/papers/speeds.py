"""Speeds relative to softmax, as scripts in benchmarks/ write them to RUNS/TABLE-DATASET.json, and their tables.

`scripts/reproduce.sh` runs them. The tables are [RL] Table 2 and Figure 2, and the last column of [RF] Table 4.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from statistics import median
from typing import NotRequired, TypedDict, TypeVar

from relumt.errors import UserError
from relumt.files import read_json
from relumt.papers.context import Runs, TableContext
from relumt.papers.experiments import WMT_RELA, Experiment, by_preset
from relumt.papers.measures import PARAMETERS
from relumt.papers.rendering import RenderedTable
from relumt.papers.table import Body, RunTable, Table
from relumt.printed_results import papers

MIN_REPEATS = 6
"""The fewest repeats that give a median a 95% interval: the range of five contains it with a probability of only
1 − 2/2^5 = 94%."""


class Ratio(TypedDict):
    """A speed relative to the baseline's: the median and the ends of its 95% interval, which few repeats lack."""

    median: float
    low: NotRequired[float]
    high: NotRequired[float]


@dataclass(frozen=True)
class Measurement:
    """How speeds were measured: what, relative to which model, on which device and by which revision of relumt."""

    what: str
    baseline: str
    device: str
    revision: str


@dataclass(frozen=True)
class RelativeSpeeds(Measurement):
    """Speeds by model."""

    relative: dict[str, Ratio]


@dataclass(frozen=True)
class TrainingAndDecodingSpeeds:
    """A file of decoding.py with --steps."""

    training: RelativeSpeeds
    decoding: RelativeSpeeds


@dataclass(frozen=True)
class LengthGroup:
    """Speeds by model on sentences of `shortest` to `longest` source tokens."""

    shortest: int
    longest: int
    relative: dict[str, Ratio]


@dataclass(frozen=True)
class SpeedsByLength(Measurement):
    """A file of decoding.py."""

    groups: list[LengthGroup]

    @property
    def models(self) -> list[str]:
        """The models that were timed, the same in each group."""
        return list(self.groups[0].relative)


@dataclass(frozen=True)
class FeedForwardSpeeds(Measurement):
    """A file of training.py: training speed by model."""

    throughput: dict[str, Ratio]


Speeds = TypeVar("Speeds")


def speed_file(context: TableContext, dataset: str) -> Path:
    """Return the path at which the benchmark of a table writes its results."""
    return context.runs / f"{context.name}-{dataset}.json"


def read_speeds(context: TableContext, dataset: str, file_format: type[Speeds]) -> Speeds | None:
    """Read what a benchmark wrote, None if it has not; raise UserError if the file is not valid."""
    with suppress(FileNotFoundError):
        return read_json(speed_file(context, dataset), file_format, f"delete it and run {context.command}")
    return None


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


def decoding_speed_tables(
    paper: str, table: str, models: Mapping[str, str], found: Runs, context: TableContext
) -> list[RenderedTable]:
    """Return a table of decoding speeds beside the paper's for each dataset with measured speeds.

    Args:
        paper, table: keys in papers.json.
        models: row of the paper's table -> model.
        found: the runs of the table, for their datasets.
        context: names the files of speeds.
    """
    content = papers()[paper][table]
    (position,) = (n for n, column in enumerate(content["columns"]) if column.startswith("decoding speed"))
    tables = []
    for dataset in dict.fromkeys(experiment.dataset for experiment in found):
        if speeds := read_speeds(context, dataset, TrainingAndDecodingSpeeds):
            decoding = speeds.decoding
            rows = [
                [label, f"{content['rows'][label][position]:.2f}", format_ratio(decoding.relative.get(model))]
                for label, model in models.items()
            ]
            header = ["", f"[{paper}] {content['columns'][position]}", f"ours, {dataset}"]
            tables.append(RenderedTable(f"decoding speed; {dataset}", header, rows, [describe_measurement(decoding)]))
    return tables


@dataclass(frozen=True)
class SpeedTable(RunTable):
    """A table or figure of the speed of models on one dataset; the first is the baseline."""

    models: tuple[str, ...] = ("softmax", "sparsemax", "entmax15", "rela_g")
    datasets: Mapping[str, str] = field(default_factory=lambda: by_preset(WMT_RELA))

    def experiments(self, preset: str) -> list[Experiment]:
        """See Table."""
        return [Experiment(self.datasets[preset], model) for model in self.models]

    def require_speeds(self, context: TableContext, file_format: type[Speeds]) -> Speeds:
        """Return the speeds; raise UserError if they were not measured, or as `read_speeds` does."""
        dataset = self.datasets[context.preset]
        speeds = read_speeds(context, dataset, file_format)
        if speeds is None:
            path = speed_file(context, dataset)
            raise UserError(f"{path}: no such file; measure speeds with {context.command}")
        return speeds


class EfficiencyTable(SpeedTable):
    """[RL] Table 2: parameters, training speed and decoding speed, one row per model."""

    def body(self, found: Runs, context: TableContext) -> Body:
        """See RunTable."""
        speeds = self.require_speeds(context, TrainingAndDecodingSpeeds)
        content = papers()[self.paper][self.item]
        rows = []
        for experiment, runs in found.items():
            ours = ["".join(f"{parameters / 1e6:.2f}" for parameters in PARAMETERS.values(runs))]
            ours += [format_ratio(kind.relative.get(experiment.model)) for kind in (speeds.training, speeds.decoding)]
            printed = [f"{value:.2f}" for value in content["rows"][experiment.model]]
            rows.append([experiment.model, *chain(*zip(printed, ours, strict=True))])
        header = [f"{source} {column}" for column in content["columns"] for source in (f"[{self.paper}]", "our")]
        notes = [
            f"training: {describe_measurement(speeds.training)}",
            f"decoding: {describe_measurement(speeds.decoding)}",
            f"[{self.paper}]: {content['note']}",
        ]
        return ["", *header], rows, notes


class SpeedByLengthFigure(SpeedTable):
    """[RL] Figure 2: decoding speed by source length, one row per group of sentences."""

    def body(self, found: Runs, context: TableContext) -> Body:
        """See RunTable."""
        speeds = self.require_speeds(context, SpeedsByLength)
        rows = [
            [f"{group.shortest}–{group.longest}", *(format_ratio(group.relative[model]) for model in speeds.models)]
            for group in speeds.groups
        ]
        notes = [describe_measurement(speeds), self.figure_note, self.plot(speeds, context)]
        return ["source tokens", *speeds.models], rows, notes

    def plot(self, speeds: SpeedsByLength, context: TableContext) -> str:
        """Write the plot; return the note that says where."""
        lengths = [(group.shortest + group.longest) / 2 for group in speeds.groups]
        lines = []
        for model in speeds.models:
            ratios = [group.relative[model] for group in speeds.groups]
            medians = [ratio["median"] for ratio in ratios]
            below = [ratio["median"] - ratio.get("low", ratio["median"]) for ratio in ratios]
            above = [ratio.get("high", ratio["median"]) - ratio["median"] for ratio in ratios]
            lines.append((model, lengths, medians, {"yerr": [below, above], "capsize": 2}))
        label = f"Decoding speed relative to {speeds.baseline}"
        return context.plot({"bars: 95% intervals": lines}, label, xlabel="Source length (tokens)")


TABLES: tuple[Table, ...] = (
    EfficiencyTable("RL", "table2", speed_benchmark="decoding.py --steps 40"),
    SpeedByLengthFigure("RL", "figure2", speed_benchmark="decoding.py"),
)
