"""The papers' figures of attention by layer, as tables and plots: [RF] Figures 4 and 5, [RL] Figures 3 to 7."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean

from relumt.errors import UserError
from relumt.runs.analysis_record import AttentionMetrics, CheckpointAnalysis, LayerAlignment, mean_over_heads
from relumt.runs.comparability import describe_revisions
from relumt.tables.context import TableContext
from relumt.tables.experiments import ALIGNED, SMOKE_DOCUMENTS, WMT_RELA, Experiment, by_preset
from relumt.tables.rendering import RenderedTable
from relumt.tables.runs import Run, any_diverged
from relumt.tables.site_figure import SiteFigure
from relumt.tables.site_panels import make_panels
from relumt.tables.table import Table
from relumt.tables.top_shares import TopShareFigure

LINE_STYLES = ("-", "--", ":", "-.")
"""Style of each curve of a figure; the color is that of the model."""

ValuesByLayer = Callable[[CheckpointAnalysis, str], list[float | None]]
"""Function of an analysis and a site that returns a value for each layer, None if the layer has none."""


@dataclass(frozen=True)
class Curve:
    """A curve over the layers: its label and its values."""

    label: str
    values: ValuesByLayer


def attention_curve(label: str, value: Callable[[AttentionMetrics], float | None]) -> Curve:
    """Return the curve of a measure of the attention weights."""
    return Curve(label, lambda analysis, site: [value(layer) for layer in analysis.attentions(site)])


def alignment_curve(label: str, value: Callable[[LayerAlignment], float]) -> Curve:
    """Return the curve of an alignment error; nothing for models whose weights cannot be aligned."""

    def values(analysis: CheckpointAnalysis, _: str) -> list[float | None]:
        return [value(layer) for layer in analysis.alignment.layers.values()] if analysis.alignment else []

    return Curve(label, values)


@dataclass(frozen=True, kw_only=True)
class LayerFigure(SiteFigure):
    """Measures by layer, means over seeds: one panel per site, one or more curves per model.

    Attributes:
        curves: drawn for each model.
        axis_label: label of the vertical axis.
        explanation: a note about the curves, "" for none.
    """

    curves: tuple[Curve, ...]
    axis_label: str
    explanation: str = ""

    def render(self, context: TableContext) -> list[RenderedTable]:
        """See Table; one row per model, site and curve, one column per layer."""
        found = self.analyzed_runs(context)
        values = {
            (experiment.model, site, curve): by_layer
            for experiment, runs in found.items()
            if not any_diverged(runs)
            for site in self.sites
            for curve in self.curves
            if (by_layer := self.values_by_layer(runs, site, curve))
        }
        if not values:
            raise UserError(f"{context.runs}: no run has an analysis with {self.axis_label}; run {context.command}")
        num_layers = max(map(len, values.values()))
        rows = []
        for (model, site, curve), by_layer in values.items():
            padding = [""] * (num_layers - len(by_layer))
            rows.append([model, site, curve.label, *map("{:.3f}".format, by_layer), *padding, f"{mean(by_layer):.3f}"])
        notes = [
            context.preset_note,
            *self.run_notes(found, context),
            *filter(None, [self.explanation]),
            self.figure_note,
            self.plot(values, context),
        ]
        header = ["model", "site", self.axis_label, *(f"layer {n}" for n in range(1, num_layers + 1)), "mean"]
        return [RenderedTable(context.caption(self.title), header, rows, notes)]

    def values_by_layer(self, runs: Sequence[Run], site: str, curve: Curve) -> list[float]:
        """Return the mean over seeds by layer; nothing if a layer of the site has no value.

        Raises:
            UserError: the analyses of the seeds do not have the same number of layers.
        """
        by_run = {run.folder: curve.values(run.analysis, site) for run in runs if run.analysis}
        if any(None in values for values in by_run.values()):
            return []
        if len(set(map(len, by_run.values()))) > 1:
            found = ", ".join(f"{folder} has {len(values)}" for folder, values in by_run.items())
            raise UserError(
                f"analyses of one model have different numbers of layers with {curve.label} ({site}): {found}; "
                "run relumt analyze again"
            )
        return [mean(values) for values in zip(*by_run.values(), strict=True)]

    def plot(self, values: Mapping[tuple[str, str, Curve], Sequence[float]], context: TableContext) -> str:
        """Write the plot; return the note that says where."""
        panels = make_panels(self.sites)
        for (model, site, curve), by_layer in values.items():
            label = f"{model}, {curve.label}" if len(self.curves) > 1 else model
            style, color = LINE_STYLES[self.curves.index(curve)], f"C{self.models.index(model)}"
            layers = range(1, len(by_layer) + 1)
            panels.draw(site, label, layers, by_layer, color, style)
            panels.axes[site].set_xticks(layers)
        return context.save_plot(panels.finish("Layer", self.axis_label.capitalize()))


DOCUMENTS = {"paper": "europarl7_en_de_1024", "small": "europarl7_small_512", "smoke": SMOKE_DOCUMENTS}


class NullHeads(Table):
    """[RL] Figure 7: the null rate of each head of cross-attention, one row per layer."""

    def experiments(self, preset: str) -> list[Experiment]:
        """See Table."""
        return [Experiment(by_preset(WMT_RELA)[preset], "rela_g", needs_analysis=True)]

    def render(self, context: TableContext) -> list[RenderedTable]:
        """See Table; shows the first seed only."""
        ((experiment, (run, *_)),) = context.find_runs(self.experiments(context.preset)).items()
        if run.diverged or run.analysis is None:
            raise UserError(f"{run.folder}: diverged, or not analyzed; make it with {context.command}")
        null_rates = [layer.null_rate for layer in run.analysis.attentions("cross") if layer.null_rate]
        if not null_rates:
            raise UserError(f"{run.folder}: no cross-attention with null rates; make it with {context.command}")
        rows = [
            [f"layer {n}", *("" if rate is None else f"{rate:.3f}" for rate in rates)]
            for n, rates in enumerate(null_rates, start=1)
        ]
        notes = [
            context.preset_note,
            f"{experiment.dataset}: test set, seed {run.seed}, {describe_revisions([run.record])}",
            self.figure_note,
            f"attention maps: relumt analyze {run.folder} --out DIR, then open DIR/report.html",
        ]
        header = ["null rate", *(f"head {n}" for n in range(1, len(null_rates[0]) + 1))]
        return [RenderedTable(context.caption(self.title), header, rows, notes)]


TABLES = (
    TopShareFigure(
        "RF",
        "figure4",
        models=("softmax", "reluformer"),
        datasets=DOCUMENTS,
        sites=("encoder", "decoder"),
    ),
    LayerFigure(
        "RF",
        "figure5",
        report_sentences=2,
        models=("softmax", "reluformer"),
        datasets=DOCUMENTS,
        curves=(
            attention_curve("more than 10 tokens away", lambda layer: mean_over_heads(layer.distant_share)),
            attention_curve("on stop words", lambda layer: mean_over_heads(layer.stop_word_share)),
            attention_curve("stop words among the keys", lambda layer: layer.stop_word_rate),
        ),
        axis_label="share of the weight",
        sites=("encoder", "decoder"),
        explanation="stop words: NLTK's lists; uniform weights have the share that stop words have among the keys; "
        "null rows are left out",
    ),
    LayerFigure(
        "RL",
        "figure3",
        models=("sparsemax", "entmax15", "rela_g"),
        curves=(attention_curve("weights of 0", lambda layer: mean_over_heads(layer.sparsity)),),
        axis_label="sparsity rate",
    ),
    LayerFigure(
        "RL",
        "figure4",
        models=("softmax", "sparsemax", "entmax15", "rela_g"),
        datasets=ALIGNED,
        curves=(
            alignment_curve("normal, best head", lambda layer: layer.normal.best_head),
            alignment_curve("normal, mean weights", lambda layer: layer.normal.mean_weights),
            alignment_curve("shifted, best head", lambda layer: layer.shifted.best_head),
            alignment_curve("shifted, mean weights", lambda layer: layer.shifted.mean_weights),
        ),
        axis_label="alignment error rate (%)",
        sites=("cross",),
    ),
    LayerFigure(
        "RL",
        "figure5",
        models=("softmax", "entmax15", "rela_g", "reluformer"),
        curves=(
            attention_curve("softmax of α", lambda layer: layer.rela_diversity),
            attention_curve("α/Σα", lambda layer: layer.head_diversity.get("normalized")),
        ),
        axis_label="head diversity",
        explanation="Jensen–Shannon divergence of the heads' weights α as distributions; softmax of α: as in the "
        "paper, only of weights that do not sum to 1; nearly uniform for weights as small as reluformer's",
    ),
    LayerFigure(
        "RL",
        "figure6",
        models=("rela_g",),
        curves=(
            attention_curve("null rate", lambda layer: mean_over_heads(layer.null_rate)),
            attention_curve("targets shuffled", lambda layer: mean_over_heads(layer.null_rate_shuffled)),
            attention_curve("variance over heads", lambda layer: layer.null_rate_variance),
        ),
        axis_label="null rate",
    ),
    NullHeads("RL", "figure7", report_sentences=10),
)
