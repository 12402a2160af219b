"""Feed-forward layers: [RF] section 3 (Table 1, Figures 1 to 3, the temperature) and the claims of [AF]."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import mean

from relumt.analysis.record import CheckpointAnalysis
from relumt.errors import UserError
from relumt.papers.context import Line, Runs, TableContext
from relumt.papers.experiments import IWSLT, Experiment, by_preset
from relumt.papers.measures import (
    BLEU_TOKENIZED,
    PARAMETERS,
    VALIDATION_LOSS,
    Measure,
    analysis_measure,
    mean_over_layers,
)
from relumt.papers.rendering import RenderedTable, format_average
from relumt.papers.runs import Run
from relumt.papers.score_table import Column, ScoreTable, TableRow, columns_on_one_corpus, make_rows
from relumt.papers.speeds import FeedForwardSpeeds, format_ratio, read_speeds
from relumt.papers.table import Body, RunTable, Table, spread_note
from relumt.printed_results import papers, printed_values

MODELS = {"relu": "ffn_relu", "softmax": "ffn_softmax", "softmax_ln": "ffn_softmax_ln"}
"""Row of [RF] Table 1 -> model."""

COLORS = {"ffn_relu": "C0", "ffn_softmax": "C1", "ffn_softmax_ln": "C2"}
DATASETS = by_preset(IWSLT)
NUM_SLOTS = {
    "paper": (32, 64, 128, 256, 512, 1024, 2048, 3072, 4096),
    "small": (32, 128, 512, 2048, 3072, 4096),
    "smoke": (16, 32),
}
"""Preset -> hidden sizes of the feed-forward layers, their numbers of memory slots."""

FLAGS = {"paper": (), "small": ("--lr", "1e-3"), "smoke": ()}
"""Preset -> further flags: layers with 4,096 slots do not learn with the learning rate of the small dataset, 2e-3."""

SIZE_FLAGS = ("--encoder-ffn-embed-dim", "--decoder-ffn-embed-dim")

Groups = Mapping[tuple[str, int], Sequence[Run]]
"""(model, number of slots) -> runs."""


def ffn_experiment(preset: str, model: str, slots: int) -> Experiment:
    """Return the experiment of a model with that many slots."""
    size = tuple(token for flag in SIZE_FLAGS for token in (flag, str(slots)))
    return Experiment(DATASETS[preset], model, f"slots-{slots}", (*size, *FLAGS[preset]), needs_analysis=True)


def feedforward_mean(label: str, attribute: str, format_spec: str, side: str = "") -> Measure:
    """Return an attribute of FeedForwardMetrics, mean over the layers of a side, "" for both."""

    def value(analysis: CheckpointAnalysis) -> float | None:
        layers = [layer for name, layer in analysis.feedforward.items() if name.startswith(side)]
        return mean_over_layers(getattr(layer, attribute) for layer in layers)

    return analysis_measure(label, value, format_spec)


ANISOTROPY = feedforward_mean("anisotropy", "anisotropy", ".4f")

VARIANCE_RATIO = feedforward_mean("variance ratio", "variance_ratio", ".3f")
"""Variance of the output over that of the residual."""


@dataclass(frozen=True)
class FfnTable(RunTable):
    """A table or figure of the analyzed runs of every model with every number of slots."""

    needs_analysis: bool = True
    shown_measures = (BLEU_TOKENIZED,)

    def experiments(self, preset: str) -> list[Experiment]:
        """See Table."""
        return [ffn_experiment(preset, model, slots) for slots in NUM_SLOTS[preset] for model in MODELS.values()]

    def introduction(self, context: TableContext) -> list[str]:
        """See RunTable."""
        return [f"{context.preset_note}; measures are means over layers"]

    def body(self, found: Runs, context: TableContext) -> Body:
        """See RunTable."""
        groups = {
            (model, slots): runs
            for model in MODELS.values()
            for slots in NUM_SLOTS[context.preset]
            if (runs := found[ffn_experiment(context.preset, model, slots)])
        }
        if not groups:
            raise UserError(f"{context.runs}: no run of this table is analyzed; analyze them with {context.command}")
        header, rows, notes = self.content(groups, context)
        return header, rows, [*spread_note(found), *notes]

    @abstractmethod
    def content(self, groups: Groups, context: TableContext) -> Body:
        """Return the header, the rows and the last notes."""


class FfnScores(FfnTable):
    """BLEU and variance ratio by model and slots below the paper's, then the training speed of all variants."""

    def content(self, groups: Groups, context: TableContext) -> Body:
        """See FfnTable."""
        paper_slots = papers()[self.paper]["settings"]["iwslt14_de_en"]["ffn"]
        rows: list[list[object]] = []
        for row in MODELS:
            printed = printed_values(self.paper, self.item, row).values()
            rows.append([f"[{self.paper}], IWSLT14: {row}", paper_slots, *printed, "", ""])
        measures = [BLEU_TOKENIZED, VARIANCE_RATIO]
        measures += [feedforward_mean(side, "variance_ratio", ".3f", side) for side in ("encoder", "decoder")]
        for (model, slots), runs in groups.items():
            rows.append([model, slots, *(measure.format_mean(runs) for measure in measures)])
        return ["model", "slots", *(measure.label for measure in measures)], rows, []

    def further_tables(self, found: Runs, context: TableContext) -> list[RenderedTable]:
        """Return a table of the training speed of every feed-forward variant, if it was measured."""
        dataset = DATASETS[context.preset]
        speeds = read_speeds(context, dataset, FeedForwardSpeeds)
        if speeds is None:
            return []
        rows = [[model, format_ratio(ratio)] for model, ratio in speeds.throughput.items()]
        header = ["model", f"training tokens/s relative to {speeds.baseline} (95% interval)"]
        slots = f"the slots of configs/datasets/{dataset}.toml"
        notes = [f"{speeds.what} with {slots}, on {speeds.device}, {speeds.revision}"]
        return [RenderedTable(f"training speed of feed-forward variants; {dataset}", header, rows, notes)]


@dataclass(frozen=True, kw_only=True)
class FfnCurves(FfnTable):
    """A measure by the number of slots, one curve per model."""

    measure: Measure

    def content(self, groups: Groups, context: TableContext) -> Body:
        """See FfnTable."""
        all_slots = sorted({slots for _, slots in groups})
        rows, lines = [], []
        for model in dict.fromkeys(model for model, _ in groups):
            runs = {slots: groups.get((model, slots), []) for slots in all_slots}
            rows.append([model, *map(self.measure.format_mean, runs.values())])
            means = {slots: mean(values) for slots in all_slots if (values := self.measure.values(runs[slots]))}
            lines.append((model, list(means), list(means.values()), {"color": COLORS[model]}))
        label = self.measure.label[0].upper() + self.measure.label[1:]
        ticks = [slots for slots in all_slots if slots.bit_count() == 1]  # 3072 would touch 4096
        axes = {"xscale": "log", "xticks": ticks, "xticklabels": ticks, "xlabel": "Memory slots"}
        return (
            [self.measure.label, *map(str, all_slots)],
            rows,
            [self.figure_note, context.plot({"": lines}, label, **axes)],
        )


class FfnTopShares(FfnTable):
    """Share of the score on the top p % of slots, one panel per model, one curve per number of slots."""

    def content(self, groups: Groups, context: TableContext) -> Body:
        """See FfnTable; raises UserError if every run diverged or has a layer whose slots all score 0."""
        shares = {key: by_run for key, runs in groups.items() if all(by_run := [top_shares(run) for run in runs])}
        if not shares:
            raise UserError(f"{context.runs}: every run diverged or has a layer without scores: nothing to draw")
        percentages = list(next(iter(shares.values()))[0])
        rows: list[list[object]] = []
        panels: dict[str, list[Line]] = {}
        for (model, slots), by_run in shares.items():
            by_percentage = [[run_shares[p] for run_shares in by_run] for p in percentages]
            rows.append([model, slots, *(format_average(values, ".3f") for values in by_percentage)])
            style = {"color": f"C{NUM_SLOTS[context.preset].index(slots)}"}
            line = f"{slots} slots", list(map(float, percentages)), list(map(mean, by_percentage)), style
            panels.setdefault(model, []).append(line)
        plot = context.plot(panels, "Share of the score", xlabel="Top p % of slots", xscale="log")
        return ["model", "slots", *(f"top {p}%" for p in percentages)], rows, [self.figure_note, plot]


def top_shares(run: Run) -> dict[str, float]:
    """Return percentage -> share, mean over layers; nothing if the run diverged or a layer has no shares."""
    if run.analysis is None:
        return {}
    layers = [layer.top_share for layer in run.analysis.feedforward.values() if layer.top_share]
    if not layers or len(layers) < len(run.analysis.feedforward):
        return {}
    return {percentage: mean(layer[percentage] for layer in layers) for percentage in layers[0]}


VARIANTS = ("relu", "relu2", "aptx1", "relu_gt", "swiglu", "geglu", "gelu", "swish", "mish")
"""Names in FEEDFORWARDS: the baseline, the variants that [AF] compares, the others."""


TEMPERATURE_SLOTS = {"paper": 1024, "small": 512, "smoke": 32}
"""Preset -> memory slots of the feed-forward layers whose temperature varies; runs of reluformer_table1 have τ = 1."""


class TemperatureTable(ScoreTable):
    """Softmax(x/τ) in the feed-forward layers, one row per τ."""

    def experiment(self, row: TableRow, column: Column, preset: str) -> Experiment:
        """See ScoreTable; the flags of the row are added to those of [RF] Table 1."""
        base = ffn_experiment(preset, row.model, TEMPERATURE_SLOTS[preset])
        return replace(base, variant=base.variant + row.variant, flags=base.flags + row.flags)


TEMPERATURES = {
    f"τ = {value}": TableRow("ffn_softmax", variant=f"-temperature-{value}", flags=("--memory-temperature", value))
    for value in ("0.25", "0.5", "1", "2", "4")
} | {"τ = 1": TableRow("ffn_softmax")}

TABLES: tuple[Table, ...] = (
    FfnScores("RF", "table1", speed_benchmark="training.py"),
    FfnCurves("RF", "figure1", measure=replace(BLEU_TOKENIZED, label="BLEU (tokenized)")),
    FfnTopShares("RF", "figure2"),
    FfnCurves("RF", "figure3", measure=ANISOTROPY),
    TemperatureTable(
        "RF",
        "temperature",
        caption="τ of softmax in feed-forward layers, [RF] section 3.4",
        rows=TEMPERATURES,
        columns=columns_on_one_corpus(IWSLT, {}, VALIDATION_LOSS, BLEU_TOKENIZED, VARIANCE_RATIO),
        baseline="τ = 1",
        needs_analysis=True,
        notes=("the paper: the temperature has little effect; its values and scores are not in papers.json",),
    ),
    ScoreTable(
        "AF",
        "activations",
        caption="feed-forward activations, the claims of [AF]",
        rows=make_rows({name: f"ffn_{name}" for name in VARIANTS}),
        columns=columns_on_one_corpus(IWSLT, {}, VALIDATION_LOSS, BLEU_TOKENIZED, PARAMETERS),
        baseline="relu",
        notes=(
            "[AF] trains an encoder to classify reviews (IMDB); these models translate",
            "[AF] puts aptx1 above relu2, and swiglu above relu2 above relu",
            "swiglu and geglu have two thirds of the slots, so they have about as many parameters as the others",
            "p tests the sentences of the test set; it says nothing about how much another seed would change the BLEU",
        ),
    ),
)
