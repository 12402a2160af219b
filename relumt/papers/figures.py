"""Figures of what models attend to, one panel per attention site, as tables and plots."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from operator import attrgetter
from statistics import mean

from relumt.analysis.record import AttentionMetrics, CheckpointAnalysis, LayerAlignment, mean_over_heads
from relumt.errors import UserError
from relumt.papers.context import Line, Runs, TableContext
from relumt.papers.experiments import WMT_RELA, Experiment, by_preset
from relumt.papers.notes import describe_revisions
from relumt.papers.rendering import DIVERGED, RenderedTable
from relumt.papers.runs import Run, any_diverged
from relumt.papers.table import Body, RunTable, Table

SITE_TITLES = {"encoder": "Encoder self-attention", "decoder": "Decoder self-attention", "cross": "Cross-attention"}

LINE_STYLES = ("-", "--", ":", "-.")
"""Style of each curve of a figure; the color is that of the model."""


Layers = Sequence[AttentionMetrics] | Sequence[LayerAlignment]


def values_by_layer(analysis: CheckpointAnalysis, site: str, measured: str) -> list[float | None]:
    """Return a measure of each layer of a site, mean over heads if it has a value for each.

    Args:
        analysis: of one run.
        site: attention site.
        measured: the attribute of AttentionMetrics, or "alignment." and that of LayerAlignment. Nothing is returned for
            alignments of models whose weights cannot be aligned.
    """
    layers: Layers = analysis.attentions(site)
    if measured.startswith("alignment."):
        layers = list(analysis.alignment.layers.values()) if analysis.alignment else []
    found = map(attrgetter(measured.removeprefix("alignment.")), layers)
    return [mean_over_heads(value) if isinstance(value, list) else value for value in found]


def top_shares(analysis: CheckpointAnalysis, site: str, percentages: Sequence[str]) -> list[float | None]:
    """Return the share of the weight on the top p % of the keys for each p, mean over layers and heads."""
    layers = [layer.top_share for layer in analysis.attentions(site) if layer.top_share]
    return [mean_over_heads([mean_over_heads(layer.get(p)) for layer in layers]) for p in percentages]


@dataclass(frozen=True, kw_only=True)
class SiteFigure(RunTable):
    """Measures of attention, means over seeds: one panel per site, one or more curves per model.

    Attributes:
        models: names in configs/models.toml.
        curves: what is drawn for each model: label -> `measured` of `values_by_layer`; empty with percentages.
        axis_label: label of the vertical axis.
        sites: attention sites to draw.
        datasets: preset -> dataset.
        percentages: values of the horizontal axis of top shares; empty for a figure by layer.
        explanation: a note about the curves, "" for none.
    """

    models: tuple[str, ...]
    curves: Mapping[str, str]
    axis_label: str
    sites: tuple[str, ...] = tuple(SITE_TITLES)
    datasets: Mapping[str, str] = field(default_factory=lambda: by_preset(WMT_RELA))
    percentages: tuple[str, ...] = ()
    explanation: str = ""
    needs_analysis: bool = True

    def experiments(self, preset: str) -> list[Experiment]:
        """See Table."""
        return [Experiment(self.datasets[preset], model, needs_analysis=True) for model in self.models]

    def body(self, found: Runs, context: TableContext) -> Body:
        """See RunTable; one row per model, site and curve, one column per layer or percentage."""
        values = {
            (experiment.model, site, curve): numbers
            for experiment, runs in found.items()
            if not any_diverged(runs)
            for site in self.sites
            for curve in self.curves
            if (numbers := self.mean_over_seeds(runs, site, curve))
        }
        if not values:
            raise UserError(f"{context.runs}: no run has an analysis with {self.axis_label}; run {context.command}")
        count = max(map(len, values.values()))
        titles = [f"top {p}%" for p in self.percentages]
        titles = titles or [self.axis_label, *(f"layer {n}" for n in range(1, count + 1)), "mean"]
        rows = []
        for (model, site, curve), numbers in values.items():
            cells = [*map("{:.3f}".format, numbers), *[""] * (count - len(numbers))]
            rows.append([model, site, *(cells if self.percentages else [curve, *cells, f"{mean(numbers):.3f}"])])
        diverged = [f"{experiment.model}: {DIVERGED}" for experiment, runs in found.items() if any_diverged(runs)]
        notes = [*diverged, *filter(None, [self.explanation]), self.figure_note, self.plot(values, context)]
        return ["model", "site", *titles], rows, notes

    def plot(self, values: Mapping[tuple[str, str, str], Sequence[float]], context: TableContext) -> str:
        """Write the plot; return the note that says where."""
        panels: dict[str, list[Line]] = {SITE_TITLES[site]: [] for site in self.sites}
        layers = list(range(1, 1 + max(map(len, values.values()))))
        for (model, site, curve), numbers in values.items():
            label = f"{model}, {curve}" if len(self.curves) > 1 else model
            x = [float(p) for p in self.percentages] or layers[: len(numbers)]
            style = {"linestyle": LINE_STYLES[list(self.curves).index(curve)], "color": f"C{self.models.index(model)}"}
            panels[SITE_TITLES[site]].append((label, x, numbers, style))
        axes = {"xlabel": "Top p % of the visible keys"} if self.percentages else {"xlabel": "Layer", "xticks": layers}
        return context.plot(panels, self.axis_label.capitalize(), **axes)

    def mean_over_seeds(self, runs: Sequence[Run], site: str, curve: str) -> list[float]:
        """Return the mean over seeds of each value of a curve; nothing if a seed lacks a value."""
        by_seed = [
            top_shares(run.analysis, site, self.percentages)
            if self.percentages
            else values_by_layer(run.analysis, site, self.curves[curve])
            for run in runs
            if run.analysis
        ]
        known = [[value for value in values if value is not None] for values in zip_longest(*by_seed)]
        return [mean(values) for values in known] if all(len(values) == len(by_seed) for values in known) else []


class NullHeads(Table):
    """[RL] Figure 7: the null rate of each head of cross-attention, one row per layer."""

    def experiments(self, preset: str) -> list[Experiment]:
        """See Table."""
        return [Experiment(by_preset(WMT_RELA)[preset], "rela_g", needs_analysis=True)]

    def render(self, context: TableContext) -> list[RenderedTable]:
        """See Table; shows the first seed only."""
        ((experiment, (run, *_)),) = context.find_runs(self.experiments(context.preset)).items()
        layers = run.analysis.attentions("cross") if run.analysis else []
        null_rates = [layer.null_rate for layer in layers if layer.null_rate]
        if not null_rates:
            raise UserError(
                f"{run.folder}: diverged, or no analysis of a cross-attention with null rates; "
                f"make it with {context.command}"
            )
        rows = [
            [f"layer {n}", *("" if rate is None else f"{rate:.3f}" for rate in rates)]
            for n, rates in enumerate(null_rates, start=1)
        ]
        notes = [
            context.preset_note,
            f"{experiment.dataset}: test set, seed {run.seed}, {describe_revisions([run])}",
            self.figure_note,
            f"attention maps: relumt analyze {run.folder} --out DIR, then open DIR/report.html",
        ]
        header = ["null rate", *(f"head {n}" for n in range(1, len(null_rates[0]) + 1))]
        return [RenderedTable(context.caption(self.title), header, rows, notes)]
