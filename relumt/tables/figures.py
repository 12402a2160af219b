"""The papers' figures of attention, as tables of numbers by layer and as plots: [RF] Figures 4–5, [RL] Figures 3–7."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter
from statistics import mean

from relumt.errors import UserError
from relumt.papers import papers, title
from relumt.runs.analysis_record import AttentionMetrics, LayerAlignment, mean_over_heads
from relumt.tables.context import DIVERGED, TableContext
from relumt.tables.experiments import Experiment
from relumt.tables.measures import BLEU_TOKENISED, mean_of_heads
from relumt.tables.rendering import RenderedTable
from relumt.tables.runs import Run, diverged, find_runs, require_comparable
from relumt.tables.scores import ALIGNED, WMT_RELA, by_preset

SITES = ("encoder", "decoder", "cross")
OF_SELF_ATTENTION = ("encoder", "decoder")


@dataclass(frozen=True)
class Line:
    """A line of a plot: its label, and its value at a layer, None where it has none."""

    label: str
    of: Callable[[AttentionMetrics], float | None] | Callable[[LayerAlignment], float | None]
    dashed: bool = False


@dataclass(frozen=True)
class LayerFigure:
    """A figure of measures by layer, a panel a site, a line or more a model; means over seeds.

    Attributes:
        paper, figure: in papers.json.
        models: in configs/models.
        datasets: by preset.
        lines: what is drawn of each model.
        sites: of attention.
        label: of the vertical axis.
    """

    paper: str
    figure: str
    models: tuple[str, ...]
    datasets: dict[str, str]
    lines: tuple[Line, ...]
    label: str
    sites: tuple[str, ...] = SITES

    @property
    def title(self) -> str:
        """What it shows, in one line."""
        return title(self.paper, self.figure)

    def experiments(self, preset: str) -> list[Experiment]:
        """Its runs."""
        return [Experiment(self.datasets[preset], model, needs_analysis=True) for model in self.models]

    def render(self, context: TableContext) -> list[RenderedTable]:
        """A row a model, site and line, a column a layer; and the plot. Raises UserError where there are no runs."""
        found = {cell: find_runs(cell, context.runs) for cell in self.experiments(context.preset)}
        context.require_any(found)
        without = context.warn_not_analyzed(found)
        found = {cell: [run for run in runs if run not in without] for cell, runs in found.items()}
        every = list(chain.from_iterable(found.values()))
        require_comparable(every, BLEU_TOKENISED.score)
        rows = [
            (cell.model, site, line, self.by_layer(runs, site, line))
            for cell, runs in found.items()
            if runs and not diverged(runs)
            for site in self.sites
            for line in self.lines
        ]
        rows = [row for row in rows if row[3]]
        if not rows:
            raise UserError(
                f"{context.runs}: no analysis with a {self.label} among the runs; make them with {context.command}"
            )
        layers = max(len(row[3]) for row in rows)
        head = ["model", "site", self.label, *(f"layer {n + 1}" for n in range(layers)), "mean"]
        cells = [
            [
                model,
                site,
                line.label,
                *(f"{x:.3f}" for x in values),
                *[""] * (layers - len(values)),
                f"{mean(values):.3f}",
            ]
            for model, site, line, values in rows
        ]
        dataset = self.datasets[context.preset]
        notes = [
            context.of_preset,
            *context.notes_of(dataset, every),
            *(f"{cell.model}: {DIVERGED}" for cell, runs in found.items() if diverged(runs)),
            f"the paper: {papers()[self.paper]['figures'][self.figure].get('text', 'prints no numbers')}",
            self.plot(rows, context),
        ]
        return [RenderedTable(context.caption(self.title), head, cells, notes)]

    def by_layer(self, runs: Sequence[Run], site: str, line: Line) -> list[float]:
        """The line's values, the mean over seeds, layer by layer; none where an attention of the site has none."""
        of_seeds = [[line.of(layer) for layer in run.analysis.attentions(site)] for run in runs]
        by_layer = list(zip(*of_seeds, strict=True))
        return [] if any(None in values for values in by_layer) else [mean(values) for values in by_layer]

    def plot(self, rows: Sequence[tuple[str, str, Line, list[float]]], context: TableContext) -> str:
        """Write the plot; returns where it is."""
        from relumt.analysis.plots import Figure

        figure = Figure(figsize=(3.6 * len(self.sites), 3.6), layout="constrained")
        panels = dict(zip(self.sites, figure.subplots(1, len(self.sites), sharey=True, squeeze=False)[0], strict=True))
        several = len(self.lines) > 1
        for model, site, line, values in rows:
            label = f"{model}, {line.label}" if several else model
            colour = f"C{self.models.index(model)}"
            style = "--" if line.dashed else "-"
            panels[site].plot(range(1, len(values) + 1), values, style, marker=".", color=colour, label=label)
        for site, ax in panels.items():
            ax.set(title=site, xlabel="layer")
            ax.legend(fontsize=7)
        panels[self.sites[0]].set_ylabel(self.label)
        return context.plotted(figure)


def heads(measure: str) -> Callable[[AttentionMetrics], float | None]:
    """The mean of a measure over an attention's heads."""
    return lambda layer: mean_of_heads(layer, measure)


def diversity(layer: AttentionMetrics) -> float | None:
    """[RL] Fig. 5: of the weights as they are where they are distributions, else of ReLU's with τ = 1."""
    return layer.main_diversity


def top_share(percent: str) -> Callable[[AttentionMetrics], float | None]:
    """[RF] Fig. 4: the share of the weight that the top keys hold, mean over heads."""

    def of(layer: AttentionMetrics) -> float | None:
        return None if layer.top_share is None else mean_over_heads(layer.top_share[percent])

    return of


def spread(layer: AttentionMetrics) -> float | None:
    """[RL] Fig. 6's variance of the null rate over heads."""
    return layer.null_rate_variance


OF_TRANSLATION = by_preset(WMT_RELA)
OF_DOCUMENTS = {"paper": "europarl7_en_de_1024", "small": "europarl7_small_512", "smoke": "smoke_documents"}

RF_FIGURE4 = LayerFigure(
    "RF", "figure4", ("softmax", "reluformer"), OF_DOCUMENTS,
    tuple(Line(f"top {p} %", top_share(p), dashed=p != "1") for p in ("1", "2", "5")),
    "share of the weight", OF_SELF_ATTENTION,
)  # fmt: skip
RF_FIGURE5 = LayerFigure(
    "RF", "figure5", ("softmax", "reluformer"), OF_DOCUMENTS,
    (Line("more than 10 tokens off", heads("distant_share")),), "share of the weight", OF_SELF_ATTENTION,
)  # fmt: skip
RL_FIGURE3 = LayerFigure(
    "RL", "figure3", ("sparsemax", "entmax15", "rela_g"), OF_TRANSLATION, (Line("weights of 0", heads("sparsity")),),
    "sparsity rate",
)  # fmt: skip
RL_FIGURE5 = LayerFigure(
    "RL", "figure5", ("softmax", "entmax15", "rela_g"), OF_TRANSLATION, (Line("Jensen–Shannon", diversity),),
    "head diversity",
)  # fmt: skip
RL_FIGURE6 = LayerFigure(
    "RL", "figure6", ("rela_g",), OF_TRANSLATION,
    (
        Line("null rate", heads("null_rate")),
        Line("targets shuffled", heads("null_rate_shuffled"), dashed=True),
        Line("variance over heads", spread),
    ),
    "null rate",
)  # fmt: skip


@dataclass(frozen=True)
class AlignmentFigure(LayerFigure):
    """[RL] Fig. 4: alignment error rate by layer of cross-attention, of the best head and the heads' mean weights."""

    def by_layer(self, runs: Sequence[Run], site: str, line: Line) -> list[float]:
        """See LayerFigure; alignment is measured apart from the rest."""
        measured = [run.analysis.alignment for run in runs if run.analysis.alignment]
        of_seeds = [[line.of(layer) for layer in of_run.layers.values()] for of_run in measured]
        return [mean(values) for values in zip(*of_seeds, strict=True)]


RL_FIGURE4 = AlignmentFigure(
    "RL", "figure4", ("softmax", "sparsemax", "entmax15", "rela_g"), ALIGNED,
    tuple(
        Line(f"{kind}, {label}", attrgetter(f"{kind}.{field}"), dashed=kind == "shifted")
        for kind in ("normal", "shifted")
        for label, field in (("best", "best_head"), ("average", "mean_weights"))
    ),
    "AER, %", ("cross",),
)  # fmt: skip


@dataclass(frozen=True)
class NullHeads:
    """[RL] Fig. 7: the null rate of each head of cross-attention, layer by layer; its maps are in the run's report."""

    model: str = "rela_g"

    @property
    def title(self) -> str:
        """What it shows, in one line."""
        return title("RL", "figure7")

    def experiments(self, preset: str) -> list[Experiment]:
        """Its runs."""
        return [Experiment(OF_TRANSLATION[preset], self.model, needs_analysis=True)]

    def render(self, context: TableContext) -> list[RenderedTable]:
        """A row a layer, a column a head, of the first seed. Raises UserError where there is no run."""
        (cell,) = self.experiments(context.preset)
        found = {cell: find_runs(cell, context.runs)}
        context.require_any(found)
        run = found[cell][0]
        if run.diverged or run.analysis is None:
            raise UserError(f"{run.folder}: diverged, or not analysed; make it with {context.command}")
        layers = run.analysis.attentions("cross")
        rows = [[f"layer {n + 1}", *(f"{rate:.3f}" for rate in layer.null_rate)] for n, layer in enumerate(layers)]
        notes = [
            context.of_preset,
            f"{cell.dataset}: test set, seed {run.seed}",
            f"the paper: {papers()['RL']['figures']['figure7']['text']}",
            f"the maps: relumt analyze {run.folder} --out DIR, then DIR/report.html",
        ]
        heads_of = [f"head {n + 1}" for n in range(len(rows[0]) - 1)]
        return [RenderedTable(context.caption(self.title), ["null rate", *heads_of], rows, notes)]


RL_FIGURE7 = NullHeads()
