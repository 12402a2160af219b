"""Tables of speeds: [RL] Table 2 and Figure 2, and the last column of [RF] Table 4."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import TypeVar

from relumt.papers import papers
from relumt.tables.context import Runs, TableContext
from relumt.tables.experiments import WMT_RELA, Experiment, by_preset
from relumt.tables.measures import BLEU_DETOKENIZED
from relumt.tables.rendering import RenderedTable
from relumt.tables.runs import require_comparable
from relumt.tables.speeds import (
    DecodingSpeeds,
    SpeedsByLength,
    TrainingAndDecodingSpeeds,
    describe_measurement,
    format_ratio,
    read_speeds,
    require_timed_checkpoints,
    speed_file,
)
from relumt.tables.table import Table

TimedSpeeds = TypeVar("TimedSpeeds", TrainingAndDecodingSpeeds, SpeedsByLength)


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
        speeds = read_speeds(context, dataset, DecodingSpeeds)
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

    def dataset(self, preset: str) -> str:
        """Return the dataset of the timed runs."""
        return by_preset(WMT_RELA)[preset]

    def experiments(self, preset: str) -> list[Experiment]:
        """See Table."""
        return [Experiment(self.dataset(preset), model) for model in self.models]

    def read_timed_runs(self, context: TableContext, file_format: type[TimedSpeeds]) -> tuple[Runs, TimedSpeeds]:
        """Return the runs, and the speeds that were measured with them.

        Raises:
            UserError: the runs differ in more than the model, or no speeds of these runs were measured.
        """
        dataset = self.dataset(context.preset)
        found = context.find_runs(self.experiments(context.preset))
        require_comparable(chain(*found.values()), BLEU_DETOKENIZED.metric)
        speeds = read_speeds(context, dataset, file_format)
        require_timed_checkpoints(context, dataset, speeds.inputs, chain(*found.values()))
        return found, speeds


class EfficiencyTable(SpeedTable):
    """[RL] Table 2: parameters, training speed and decoding speed, one row per model."""

    def render(self, context: TableContext) -> list[RenderedTable]:
        """See Table; raises UserError as `read_timed_runs` does."""
        dataset = self.dataset(context.preset)
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
        dataset = self.dataset(context.preset)
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
