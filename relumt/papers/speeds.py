"""Speeds relative to softmax, as scripts in benchmarks/ write them to RUNS/TABLE-DATASET.json, and their tables.

`scripts/reproduce.sh` runs them. The tables are [RL] Table 2 and Figure 2, and the last column of [RF] Table 4.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Annotated, NotRequired, TypedDict, TypeVar

from msgspec import Meta

from relumt.errors import UserError
from relumt.files import read_json
from relumt.papers.context import Runs, TableContext
from relumt.papers.experiments import WMT_RELA, Experiment, by_preset
from relumt.papers.measures import BLEU_DETOKENIZED
from relumt.papers.rendering import RenderedTable
from relumt.papers.runs import Run, require_comparable
from relumt.papers.table import Table
from relumt.printed_results import papers

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
    """Which trained models were timed: model -> SHA-256 of its checkpoint; empty in files of earlier versions."""

    checkpoints: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class TrainingAndDecodingSpeeds:
    """A file of train_decode_speed.py."""

    training: RelativeSpeeds
    decoding: RelativeSpeeds
    inputs: TimedModels = field(default_factory=TimedModels, kw_only=True)


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


Speeds = TypeVar("Speeds", TrainingAndDecodingSpeeds, SpeedsByLength, FeedForwardSpeeds)
TimedSpeeds = TypeVar("TimedSpeeds", TrainingAndDecodingSpeeds, SpeedsByLength)


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
    """Raise UserError if none of the `runs` of a model has the checkpoint that was timed."""
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


def decoding_speed_tables(
    paper: str, table: str, models: Mapping[str, str], datasets: Iterable[str], runs: Runs, context: TableContext
) -> list[RenderedTable]:
    """Return a table of decoding speeds beside the paper's for each dataset with measured speeds.

    Args:
        paper, table: keys in papers.json.
        models: row of the paper's table -> model.
        datasets: names in configs/datasets.
        runs: the runs that were timed.
        context: names the files of speeds.

    Raises:
        UserError: a file of speeds is not valid, or is about other checkpoints.
    """
    content = papers()[paper][table]
    (position,) = (n for n, column in enumerate(content["columns"]) if column.startswith("decoding speed"))
    tables = []
    for dataset in datasets:
        if not speed_file(context, dataset).is_file():
            continue
        speeds = read_speeds(context, dataset, TrainingAndDecodingSpeeds)
        own = (found for experiment, found in runs.items() if experiment.dataset == dataset)
        require_timed_checkpoints(context, dataset, speeds.inputs, chain(*own))
        decoding = speeds.decoding
        rows = [
            [label, f"{content['rows'][label][position]:.2f}", format_ratio(decoding.relative.get(model))]
            for label, model in models.items()
        ]
        header = ["", f"[{paper}] {content['columns'][position]}", f"ours, {dataset}"]
        tables.append(RenderedTable(f"decoding speed; {dataset}", header, rows, [describe_measurement(decoding)]))
    return tables


@dataclass(frozen=True)
class SpeedTable(Table):
    """A table or figure of the speed of models on one dataset; the first is the baseline."""

    models: tuple[str, ...] = ("softmax", "sparsemax", "entmax15", "rela_g")
    datasets: Mapping[str, str] = field(default_factory=lambda: by_preset(WMT_RELA))

    def experiments(self, preset: str) -> list[Experiment]:
        """See Table."""
        return [Experiment(self.datasets[preset], model) for model in self.models]

    def read_timed_runs(self, context: TableContext, file_format: type[TimedSpeeds]) -> tuple[Runs, TimedSpeeds]:
        """Return the runs, which differ in the model only, and the speeds that were measured with them."""
        dataset = self.datasets[context.preset]
        found = context.find_runs(self.experiments(context.preset))
        require_comparable(chain(*found.values()), BLEU_DETOKENIZED.metric)
        speeds = read_speeds(context, dataset, file_format)
        require_timed_checkpoints(context, dataset, speeds.inputs, chain(*found.values()))
        return found, speeds


class EfficiencyTable(SpeedTable):
    """[RL] Table 2: parameters, training speed and decoding speed, one row per model."""

    def render(self, context: TableContext) -> list[RenderedTable]:
        """See Table; raises UserError as `read_timed_runs` does."""
        dataset = self.datasets[context.preset]
        found, speeds = self.read_timed_runs(context, TrainingAndDecodingSpeeds)
        content = papers()[self.paper][self.item]
        rows = []
        for experiment, runs in found.items():
            sizes = [run.record.training.parameters for run in runs if run.record.training]
            ours = [f"{sizes[0] / 1e6:.2f}" if sizes else ""]
            ours += [format_ratio(kind.relative.get(experiment.model)) for kind in (speeds.training, speeds.decoding)]
            row = [experiment.model]
            for printed, own in zip(content["rows"][experiment.model], ours, strict=True):
                row += [f"{printed:.2f}", own]
            rows.append(row)
        header = [f"{source} {column}" for column in content["columns"] for source in (f"[{self.paper}]", "our")]
        notes = [
            context.preset_note,
            *context.notes(dataset, chain(*found.values())),
            f"training: {describe_measurement(speeds.training)}",
            f"decoding: {describe_measurement(speeds.decoding)}",
            f"[{self.paper}]: {content['note']}",
        ]
        return [RenderedTable(context.caption(self.title), ["", *header], rows, notes)]


class SpeedByLengthFigure(SpeedTable):
    """[RL] Figure 2: decoding speed by source length, one row per group of sentences."""

    def render(self, context: TableContext) -> list[RenderedTable]:
        """See Table; raises UserError as `read_timed_runs` does."""
        dataset = self.datasets[context.preset]
        found, speeds = self.read_timed_runs(context, SpeedsByLength)
        rows = [
            [f"{group.shortest}–{group.longest}", *(format_ratio(group.relative[model]) for model in speeds.models)]
            for group in speeds.groups
        ]
        notes = [
            context.preset_note,
            *context.notes(dataset, chain(*found.values())),
            describe_measurement(speeds),
            self.figure_note,
            self.plot(speeds, context),
        ]
        return [RenderedTable(context.caption(self.title), ["source tokens", *speeds.models], rows, notes)]

    def plot(self, speeds: SpeedsByLength, context: TableContext) -> str:
        """Write the plot; return the note that says where."""
        from relumt.analysis.plots import Figure, plain_text

        figure = Figure(figsize=(6, 4), layout="constrained")
        ax = figure.subplots()
        lengths = [(group.shortest + group.longest) / 2 for group in speeds.groups]
        for model in speeds.models:
            ratios = [group.relative[model] for group in speeds.groups]
            ax.plot(lengths, [ratio["median"] for ratio in ratios], marker="o", label=plain_text(model))
            # without an interval, the band is the line itself
            low = [ratio.get("low", ratio["median"]) for ratio in ratios]
            high = [ratio.get("high", ratio["median"]) for ratio in ratios]
            ax.fill_between(lengths, low, high, alpha=0.15)
        ax.set(xlabel="Source length (tokens)", ylabel=f"Decoding speed relative to {plain_text(speeds.baseline)}")
        columns = len(speeds.models)
        figure.legend(title="Model (band: 95% interval)", loc="outside upper left", ncols=columns, fontsize=8)
        return context.save_plot(figure)


TABLES = (
    EfficiencyTable("RL", "table2", speed_benchmark="train_decode_speed.py"),
    SpeedByLengthFigure("RL", "figure2", speed_benchmark="decoding_speed.py"),
)
