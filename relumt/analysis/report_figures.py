"""The figures of report.html: measures by layer, with the papers' values."""

import html
from collections.abc import Callable, Iterator, Mapping, Sequence

import plotly.graph_objects as go
from plotly.colors import qualitative
from plotly.subplots import make_subplots

from relumt.analysis.record import AttentionMetrics, CheckpointAnalysis, mean_over_heads
from relumt.plugin.options import SITES
from relumt.printed_results import printed_values

COLORS = qualitative.Plotly
DASHES = ("dot", "dashdot", "longdash", "longdashdot")
QUERIES = ("normal", "shifted")
TICKS = ("0.1", "0.2", "0.5", "1", "2", "5", "10", "20", "50")
"""Percentages of keys that the axis of top shares is labeled with; a logarithmic axis would read 1 2 5 10 2 5."""

Figures = dict[str, tuple[str, str, go.Figure]]
"""Figure by HTML id: title, explanation and the figure."""

Line = tuple[str, str, Sequence[float], Sequence[float | None]]
"""A line of a panel: what is added to the checkpoint's name, dash, x and y."""

Measure = str | Callable[[AttentionMetrics], float | None]
"""A field of `AttentionMetrics`, of which the mean over heads is taken, or a function."""


def build_figures(checkpoints: Sequence[CheckpointAnalysis]) -> Figures:
    """Return the figures that at least one checkpoint has data for."""

    def plot(draw: Callable[[CheckpointAnalysis, str], Iterator[Line]], panels: Sequence[str] = SITES) -> go.Figure:
        figure = make_subplots(1, len(panels), subplot_titles=panels, shared_yaxes=True)
        figure.update_xaxes(title="layer", dtick=1, title_standoff=6)
        figure.update_yaxes(rangemode="tozero")
        margin = {"l": 50, "t": 40, "b": 50, "r": 20}
        figure.update_layout(height=360, template="plotly_white", margin=margin, font={"color": "#3e4c59"})
        for number, checkpoint in enumerate(checkpoints):
            for column, panel in enumerate(panels, start=1):
                for suffix, dash, x, y in draw(checkpoint, panel):
                    _add_line(figure, column, checkpoint.name + suffix, x, y, COLORS[number % len(COLORS)], dash)
        return figure

    top_share_axis = {"type": "log", "dtick": None, "tickvals": [float(p) for p in TICKS], "ticktext": TICKS}
    rf_entropies = (
        printed_values("RF", "table3", "softmax")["H(s)"],
        printed_values("RF", "table5", "reluformer")["entropy"],
    )
    rl_diversity = {label: list(printed_values("RL", "table6", row).values()) for label, row in (
        ("[RL] softmax", "softmax"), ("[RL] entmax15", "entmax15"), ("[RL] ReLA-g, τ = 1", "rela_g tau=1.00"))
    }  # fmt: skip
    rl_errors = {
        f"[RL] {row}": [None, printed_values("RL", "table5", row)["shifted AoH"]]
        for row in ("softmax", "sparsemax", "entmax15", "rela_g")
    }
    figures = {
        "sparsity": (
            "Sparsity by layer ([RL] Fig. 3)",
            "Share of the visible keys with a weight of exactly 0, mean over heads.",
            plot(by_layer("sparsity")),
        ),
        "null_rate": (
            "Null rate by layer ([RL] Fig. 6)",
            "Share of queries that put no weight on any key. Dashed: each target paired with another source.",
            plot(by_layer("null_rate", "null_rate_shuffled", "shuffled")),
        ),
        "entropy": (
            "Entropy by layer ([RF] Tables 3 and 5)",
            "Entropy of the normalized weights in nats; a query without weights counts as 0. Dashed: without such "
            "queries. Gray: means reported by [RF] for IWSLT14.",
            add_paper_values(
                plot(by_layer("entropy", "entropy_non_null", "non-null")),
                {
                    f"[RF] {row}": [x] * len(SITES)
                    for row, x in zip(("softmax", "ReLUFormer"), rf_entropies, strict=True)
                },
            ),
        ),
        "sink_rate": (
            "Sink rate by layer",
            "Share of a query's weight on the first key that it can attend to: the first token of the source in the "
            "encoder and in cross-attention, the end-of-sentence symbol that starts the target in the decoder. Queries "
            "with a single visible key and null rows are left out. Dashed: what uniform weights would give there.",
            plot(by_layer("sink_rate", "sink_rate_uniform", "uniform weights")),
        ),
        "distant": (
            "Weight on distant tokens ([RF] Fig. 5)",
            "Share of a query's weight on keys more than 10 tokens away, in self-attention.",
            plot(by_layer("distant_share"), ("encoder", "decoder")),
        ),
        "stop_words": (
            "Weight on stop words ([RF] Fig. 5)",
            "Share of a query's weight on keys that are stop words of NLTK's list; null rows are left out. Dashed: "
            "share of stop words among the visible keys of the same queries, which is what uniform weights would give.",
            plot(by_layer("stop_word_share", "stop_word_rate", "uniform weights")),
        ),
        "diversity": (
            "Head diversity by layer ([RL] Fig. 5, Table 6)",
            "Jensen–Shannon divergence of the heads' distributions in nats. Solid: weights α that do not sum to 1 "
            "become distributions by a softmax (τ = 1), as in [RL]; it is nearly uniform for small weights such as "
            "ReLUFormer's. Dashed: by α/Σα. Gray: means over layers reported by [RL].",
            add_paper_values(
                plot(by_layer("rela_diversity", lambda layer: layer.head_diversity.get("normalized"), "α/Σα")),
                rl_diversity,
            ),
        ),
        "top_share": (
            "Centralization ([RF] Fig. 4)",
            "Share of the weight on the top p % of the visible keys, mean over layers and heads; interpolated between "
            "whole numbers of keys.",
            plot(draw_top_shares).update_xaxes(title="top p % of the visible keys", **top_share_axis),
        ),
        "alignment": (
            "Alignment error rate by layer ([RL] Fig. 4, Table 5)",
            "AER in percent: best head (solid) and weights averaged over heads (dashed). Gray: best head, shifted, "
            "mean over layers, as reported by [RL] for other data.",
            add_paper_values(plot(by_query("errors"), QUERIES), rl_errors),
        ),
        "norm_alignment": (
            "Alignment error rate by layer, from norms",
            "The same from norm-weighted attention (Kobayashi et al. 2020): best head (solid) and all heads together "
            "(dashed).",
            plot(by_query("norm_errors"), QUERIES),
        ),
    }
    return {name: figure for name, figure in figures.items() if figure[2].data}


def by_layer(
    solid: Measure, dashed: Measure | None = None, dashed_suffix: str = ""
) -> Callable[[CheckpointAnalysis, str], Iterator[Line]]:
    """Return a function that yields one or two measures by layer of a site."""

    def value(layer: AttentionMetrics, measure: Measure) -> float | None:
        found = measure(layer) if callable(measure) else getattr(layer, measure)
        return mean_over_heads(found) if isinstance(found, list) else found

    def draw(checkpoint: CheckpointAnalysis, site: str) -> Iterator[Line]:
        layers = checkpoint.attentions(site)
        x = range(1, len(layers) + 1)
        yield "", "solid", x, [value(layer, solid) for layer in layers]
        if dashed is not None:
            yield f", {dashed_suffix}", "dash", x, [value(layer, dashed) for layer in layers]

    return draw


def draw_top_shares(checkpoint: CheckpointAnalysis, site: str) -> Iterator[Line]:
    """Yield the share of the weight by percentage of keys of a site."""
    layers = [layer.top_share for layer in checkpoint.attentions(site) if layer.top_share]
    if layers:
        shares = [mean_over_heads([mean_over_heads(layer[p]) for layer in layers]) for p in layers[0]]
        yield "", "solid", list(map(float, layers[0])), shares


def by_query(errors: str) -> Callable[[CheckpointAnalysis, str], Iterator[Line]]:
    """Return a function that yields alignment error rates by layer for a choice of query.

    Args:
        errors: method of `AlignmentMetrics` that returns them.
    """

    def draw(checkpoint: CheckpointAnalysis, query: str) -> Iterator[Line]:
        layers = getattr(checkpoint.alignment, errors)(query) if checkpoint.alignment else []
        x = range(1, len(layers) + 1)
        yield ", best head", "solid", x, [layer.best_head for layer in layers]
        yield ", all heads", "dash", x, [layer.mean_weights for layer in layers]

    return draw


def add_paper_values(figure: go.Figure, lines: Mapping[str, Sequence[float | None]]) -> go.Figure:
    """Add a paper's values, one per panel, as gray lines with an entry in the legend; an empty figure stays empty."""
    if not figure.data:
        return figure
    last_layer = max(x for trace in figure.data for x in trace.x)
    for dash, (label, values) in zip(DASHES, lines.items(), strict=False):
        distinct = {value for value in values if value is not None}
        if len(distinct) == 1:
            label = f"{label} {distinct.pop():g}"
        for column, value in enumerate(values, start=1):
            _add_line(figure, column, label, [1, last_layer], [value, value], "gray", dash, mode="lines")
    return figure


def _add_line(
    figure: go.Figure, column: int, label: str, x: Sequence[float], y: Sequence[float | None], color: str,
    dash: str, mode: str = "lines+markers",
) -> None:  # fmt: skip
    """Add a line to a panel, with one legend entry per label in the whole figure; nothing if y has no value."""
    if all(value is None for value in y):
        return
    label = html.escape(label)  # Plotly interprets labels as HTML
    is_new = label not in {trace.name for trace in figure.data}
    line = {"color": color, "dash": dash}
    trace = go.Scatter(x=list(x), y=y, name=label, legendgroup=label, mode=mode, line=line, showlegend=is_new)
    figure.add_trace(trace, 1, column)
