"""[RF] §3: feed-forward layers as memories. Table 1 and Figures 1–3, from runs of `configs/models/ffn_*`."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import chain
from statistics import mean

from relumt.errors import UserError
from relumt.papers import papers, printed_values, title
from relumt.runs.analysis_record import FeedForwardMetrics
from relumt.runs.comparability import average
from relumt.tables.context import SPREAD, TableContext
from relumt.tables.experiments import Experiment
from relumt.tables.measures import BLEU_TOKENISED, Measure
from relumt.tables.rendering import RenderedTable
from relumt.tables.runs import Run, find_runs, require_comparable
from relumt.tables.score_table import shown, values
from relumt.tables.scores import IWSLT, by_preset
from relumt.tables.speeds import figures_of, measured, ratio

NAMES = {"relu": "ffn_relu", "softmax": "ffn_softmax", "softmax_ln": "ffn_softmax_ln"}
"""Row of [RF] Table 1 → model."""

COLOURS = {"ffn_relu": "C0", "ffn_softmax": "C1", "ffn_softmax_ln": "C2"}
DATASETS = by_preset(IWSLT)
SLOTS = {
    "paper": (32, 64, 128, 256, 512, 1024, 2048, 3072, 4096),
    "small": (32, 128, 512, 2048, 3072, 4096),
    "smoke": (16, 32),
}
"""Preset → sizes of the memories."""

FLAGS = {"paper": (), "small": ("--lr", "1e-3"), "smoke": ()}
"""Preset → further flags: with the 2e-3 of the small corpus's configuration, memories of 4,096 slots do not learn."""

VARIED = ("--encoder-ffn-embed-dim", "--decoder-ffn-embed-dim")

Layers = dict[str, FeedForwardMetrics]
Groups = dict[tuple[str, int], list[Run]]  # (model, slots) -> seeds


def cell(preset: str, model: str, slots: int) -> Experiment:
    """The runs of a model with so many slots."""
    size = ("--encoder-ffn-embed-dim", str(slots), "--decoder-ffn-embed-dim", str(slots))
    return Experiment(DATASETS[preset], model, f"slots-{slots}", (*size, *FLAGS[preset]), needs_analysis=True)


def layers_of(run: Run) -> Layers:
    """What its feed-forward layers did, by layer."""
    return run.analysis.feedforward


def variance_ratio(run: Run, side: str = "") -> float:
    """Of output and residual, the mean over the layers of a side, "encoder" or "decoder"; of all if it is ""."""
    return mean(layer.variance_ratio for name, layer in layers_of(run).items() if name.startswith(side))


def mean_over_layers(run: Run, of: Callable[[FeedForwardMetrics], float | None]) -> float | None:
    """The mean of a measure over layers; None if any layer has none."""
    values = [of(layer) for layer in layers_of(run).values()]
    return None if None in values else mean(values)


def anisotropy(layer: FeedForwardMetrics) -> float | None:
    """Of the value slots; None for a single one."""
    return layer.anisotropy


@dataclass(frozen=True)
class OfMemories:
    """A table or figure of the same runs: every kind of memory at every size.

    Attributes:
        item: in papers.json.
        sheets: makes it of the runs by model and slots.
    """

    item: str
    sheets: Callable[[Groups, TableContext, str, list[str]], list[RenderedTable]]

    @property
    def title(self) -> str:
        """What it shows, in one line."""
        return title("RF", self.item)

    def experiments(self, preset: str) -> list[Experiment]:
        """Its runs."""
        return [cell(preset, model, slots) for slots in SLOTS[preset] for model in NAMES.values()]

    def render(self, context: TableContext) -> list[RenderedTable]:
        """See Table. Raises UserError where there are no runs, or they do not compare."""
        groups = {
            (model, slots): find_runs(cell(context.preset, model, slots), context.runs)
            for model in NAMES.values()
            for slots in SLOTS[context.preset]
        }
        context.require_any({cell(context.preset, *key): runs for key, runs in groups.items()})
        every = list(chain.from_iterable(groups.values()))
        require_comparable(every, BLEU_TOKENISED.score, VARIED)
        without = context.warn_not_analyzed(groups)
        if len(without) == len(every):
            raise UserError(f"{context.runs}: no run of this table is analysed; make it with {context.command}")
        groups = {key: [run for run in runs if run not in without] for key, runs in groups.items()}
        every = list(chain.from_iterable(groups.values()))
        notes = [f"{context.of_preset}; measures are means over layers"]
        notes += context.notes_of(DATASETS[context.preset], every, [BLEU_TOKENISED])
        if any(len(runs) > 1 for runs in groups.values()):
            notes.append(SPREAD)
        there = {key: runs for key, runs in groups.items() if runs}
        return self.sheets(there, context, context.caption(self.title), notes)


def table1(groups: Groups, context: TableContext, caption: str, notes: list[str]) -> list[RenderedTable]:
    """BLEU and variance ratio by model and slots, [RF]'s figures above; then the speed of every variant."""
    settings = papers()["RF"]["settings"]["iwslt14_de_en"]
    rows: list[list[object]] = [
        [f"[RF], IWSLT14: {row}", settings["ffn"], *printed_values("RF", "table1", row).values(), "", ""] for row in NAMES
    ]
    for (model, slots), runs in groups.items():
        sides = [
            shown(runs, Measure(side, lambda run, side=side: variance_ratio(run, side), ".3f"))
            for side in ("", "encoder", "decoder")
        ]
        rows.append([model, slots, shown(runs, BLEU_TOKENISED), *sides])
    head = ("model", "slots", BLEU_TOKENISED.label, "variance ratio", "encoder", "decoder")
    return [RenderedTable(caption, head, rows, notes), *speeds(context)]


def speeds(context: TableContext) -> list[RenderedTable]:
    """Training speed of every feed-forward variant, where it was measured."""
    path = figures_of(context, DATASETS[context.preset])
    if not path.is_file():
        return []
    of = measured(path, context)
    rows = [[name, ratio(figures)] for name, figures in of["throughput"].items()]
    head = ("model", f"training tokens/s relative to {of['baseline']} (95 % interval)")
    notes = [f"{of['what']} with the slots of configs/datasets/{DATASETS[context.preset]}, on {of['device']}"]
    return [RenderedTable(f"training speed of the variants; {DATASETS[context.preset]}", head, rows, notes)]


def bleu_by_slots(groups: Groups, context: TableContext, caption: str, notes: list[str]) -> list[RenderedTable]:
    """[RF] Fig. 1."""
    return by_slots(groups, context, caption, notes, replace(BLEU_TOKENISED, label="BLEU (tokenized)"))


def anisotropy_by_slots(groups: Groups, context: TableContext, caption: str, notes: list[str]) -> list[RenderedTable]:
    """[RF] Fig. 3."""
    measure = Measure("anisotropy", lambda run: mean_over_layers(run, anisotropy), ".4f")
    return by_slots(groups, context, caption, notes, measure)


def by_slots(
    groups: Groups, context: TableContext, caption: str, notes: list[str], measure: Measure
) -> list[RenderedTable]:
    """A measure by model and slots, and its plot."""
    from relumt.analysis.plots import Figure

    widths = sorted({slots for _, slots in groups})
    figure = Figure(figsize=(6, 4), layout="constrained")
    ax = figure.subplots()
    rows = []
    for model in dict.fromkeys(model for model, _ in groups):
        runs = {slots: groups[model, slots] for slots in widths if (model, slots) in groups}
        rows.append([model, *(shown(runs.get(slots, []), measure) for slots in widths)])
        drawn = {slots: mean(found) for slots, seeds in runs.items() if (found := values(seeds, measure))}
        ax.plot(list(drawn), list(drawn.values()), marker="o", label=model, color=COLOURS[model])
    ax.set_xscale("log", base=2)
    ax.set(xlabel="memory slots", ylabel=measure.label)
    ax.legend()
    return [RenderedTable(caption, [measure.label, *map(str, widths)], rows, [*notes, context.plotted(figure)])]


def has_shares(run: Run) -> bool:
    """Whether every layer has scores whose shares can be taken; a dead one has none."""
    return not run.diverged and all(layer.top_share for layer in layers_of(run).values())


def shares(groups: Groups, context: TableContext, caption: str, notes: list[str]) -> list[RenderedTable]:
    """[RF] Fig. 2: share of the score that the top p % of slots hold; a panel a model, a line a memory size."""
    from relumt.analysis.plots import Figure

    there = {key: runs for key, runs in groups.items() if all(has_shares(run) for run in runs)}
    if not there:
        raise UserError(f"{context.runs}: every run diverged or has a layer without scores; there is nothing to draw")
    models = list(dict.fromkeys(model for model, _ in there))
    first = next(iter(there.values()))[0]
    percents = list(next(iter(layers_of(first).values())).top_share)
    figure = Figure(figsize=(4 * len(models), 3.6), layout="constrained")
    panels = dict(zip(models, figure.subplots(1, len(models), sharey=True, squeeze=False)[0], strict=True))
    rows = []
    for (model, slots), runs in there.items():
        of_percents = [[mean_over_layers(run, lambda layer, p=p: layer.top_share[p]) for run in runs] for p in percents]
        rows.append([model, slots, *(average(share, ".3f") for share in of_percents)])
        panels[model].plot(
            [float(p) for p in percents], [mean(share) for share in of_percents], marker=".", label=slots
        )
    for model, ax in panels.items():
        ax.set(title=model, xlabel="top p % of slots", xscale="log")
        ax.legend(title="slots", fontsize=7)
    panels[models[0]].set_ylabel("share of the score")
    head = ["model", "slots", *(f"top {p} %" for p in percents)]
    return [RenderedTable(caption, head, rows, [*notes, context.plotted(figure)])]


TABLE1 = OfMemories("table1", table1)
FIGURE1 = OfMemories("figure1", bleu_by_slots)
FIGURE2 = OfMemories("figure2", shares)
FIGURE3 = OfMemories("figure3", anisotropy_by_slots)
