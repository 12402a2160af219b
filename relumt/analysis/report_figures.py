"""The figures of report.html: measures by layer, with the papers' values."""

import html
from collections.abc import Callable, Mapping, Sequence

from relumt.errors import UserError
from relumt.options import SITES
from relumt.papers import printed_values
from relumt.runs.analysis_record import (
    AlignmentErrors,
    AlignmentMetrics,
    AttentionMetrics,
    CheckpointAnalysis,
    mean_over_heads,
)

try:
    import plotly.graph_objects as go
    from plotly.colors import qualitative
    from plotly.subplots import make_subplots
except ModuleNotFoundError as error:
    raise UserError(f"a report needs {error.name}; run pip install '.[report]' in the checkout") from None

COLORS = qualitative.Plotly
DASHES = ("dot", "dashdot", "longdash", "longdashdot")
QUERIES = ("normal", "shifted")
TICKS = ("0.1", "0.2", "0.5", "1", "2", "5", "10", "20", "50")
"""Percentages of keys that the axis of top shares is labeled with; a logarithmic axis would read 1 2 5 10 2 5."""

Figures = dict[str, tuple[str, str, go.Figure]]
"""Figure by HTML id: title, explanation and the figure."""


def build_figures(checkpoints: Sequence[CheckpointAnalysis]) -> Figures:
    """Return the figures that at least one checkpoint has data for."""
    figures = {
        "sparsity": (
            "Sparsity by layer ([RL] Fig. 3)",
            "Share of the visible keys with a weight of exactly 0, mean over heads.",
            plot_by_layer(checkpoints, head_mean("sparsity")),
        ),
        "null_rate": (
            "Null rate by layer ([RL] Fig. 6)",
            "Share of queries that put no weight on any key. Dashed: each target paired with another source.",
            plot_by_layer(checkpoints, head_mean("null_rate"), head_mean("null_rate_shuffled"), "shuffled"),
        ),
        "entropy": (
            "Entropy by layer ([RF] Tables 3 and 5)",
            "Entropy of the normalized weights in nats; a query without weights counts as 0. Dashed: without such "
            "queries. Gray: means reported by [RF] for IWSLT14.",
            add_paper_values(
                plot_by_layer(checkpoints, head_mean("entropy"), head_mean("entropy_non_null"), "non-null"),
                {
                    "[RF] softmax": [printed_values("RF", "table3", "softmax")["H(s)"]] * len(SITES),
                    "[RF] ReLUFormer": [printed_values("RF", "table5", "reluformer")["entropy"]] * len(SITES),
                },
            ),
        ),
        "sink_rate": (
            "Sink rate by layer",
            "Share of a query's weight on the first key that it can attend to: the first token of the source in the "
            "encoder and in cross-attention, the end-of-sentence symbol that starts the target in the decoder. Queries "
            "with a single visible key and null rows are left out. Dashed: what uniform weights would give there.",
            plot_by_layer(
                checkpoints, head_mean("sink_rate"), lambda layer: layer.sink_rate_uniform, "uniform weights"
            ),
        ),
        "distant": (
            "Weight on distant tokens ([RF] Fig. 5)",
            "Share of a query's weight on keys more than 10 tokens away, in self-attention.",
            plot_by_layer(checkpoints, head_mean("distant_share"), sites=("encoder", "decoder")),
        ),
        "stop_words": (
            "Weight on stop words ([RF] Fig. 5)",
            "Share of a query's weight on keys that are stop words of NLTK's list; null rows are left out. Dashed: "
            "share of stop words among the visible keys of the same queries, which is what uniform weights would give.",
            plot_by_layer(
                checkpoints, head_mean("stop_word_share"), lambda layer: layer.stop_word_rate, "uniform weights"
            ),
        ),
        "diversity": (
            "Head diversity by layer ([RL] Fig. 5, Table 6)",
            "Jensen–Shannon divergence of the heads' distributions in nats. Solid: weights α that do not sum to 1 "
            "become distributions by a softmax (τ = 1), as in [RL]; it is nearly uniform for small weights such as "
            "ReLUFormer's. Dashed: by α/Σα. Gray: means over layers reported by [RL].",
            add_paper_values(
                plot_by_layer(
                    checkpoints,
                    lambda layer: layer.rela_diversity,
                    lambda layer: layer.head_diversity.get("normalized"),
                    "α/Σα",
                ),
                {
                    "[RL] softmax": list(printed_values("RL", "table6", "softmax").values()),
                    "[RL] entmax15": list(printed_values("RL", "table6", "entmax15").values()),
                    "[RL] ReLA-g, τ = 1": list(printed_values("RL", "table6", "rela_g tau=1.00").values()),
                },
            ),
        ),
        "top_share": (
            "Centralization ([RF] Fig. 4)",
            "Share of the weight on the top p % of the visible keys, mean over layers and heads; interpolated between "
            "whole numbers of keys.",
            plot_top_shares(checkpoints),
        ),
        "alignment": (
            "Alignment error rate by layer ([RL] Fig. 4, Table 5)",
            "AER in percent: best head (solid) and weights averaged over heads (dashed). Gray: best head, shifted, "
            "mean over layers, as reported by [RL] for other data.",
            add_paper_values(
                plot_alignment_errors(checkpoints, lambda found, query: found.errors(query)),
                {
                    f"[RL] {row}": [None, printed_values("RL", "table5", row)["shifted AoH"]]
                    for row in ("softmax", "sparsemax", "entmax15", "rela_g")
                },
            ),
        ),
        "norm_alignment": (
            "Alignment error rate by layer, from norms",
            "The same from norm-weighted attention (Kobayashi et al. 2020): best head (solid) and all heads together "
            "(dashed).",
            plot_alignment_errors(checkpoints, lambda found, query: found.norm_errors(query)),
        ),
    }
    return {name: figure for name, figure in figures.items() if figure[2].data}


def head_mean(measure: str) -> Callable[[AttentionMetrics], float | None]:
    """Return a function that computes the mean over heads of a measure of one attention module."""
    return lambda layer: mean_over_heads(getattr(layer, measure))


def plot_by_layer(
    checkpoints: Sequence[CheckpointAnalysis],
    measure: Callable[[AttentionMetrics], float | None],
    dashed: Callable[[AttentionMetrics], float | None] | None = None,
    dashed_suffix: str = "",
    sites: Sequence[str] = SITES,
) -> go.Figure:
    """Plot a measure by layer, one panel per site and one line per checkpoint; `dashed` is a second measure."""
    figure = _make_panels(sites)
    for number, checkpoint in enumerate(checkpoints):
        for column, site in enumerate(sites, start=1):
            layers = checkpoint.attentions(site)
            x = list(range(1, len(layers) + 1))
            _add_line(figure, column, checkpoint.name, x, [measure(layer) for layer in layers], _color(number))
            if dashed is not None:
                label = f"{checkpoint.name}, {dashed_suffix}"
                _add_line(figure, column, label, x, [dashed(layer) for layer in layers], _color(number), "dash")
    return figure


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


def plot_top_shares(checkpoints: Sequence[CheckpointAnalysis]) -> go.Figure:
    """Plot the share of the weight by percentage of keys, one panel per site and one line per checkpoint."""
    figure = _make_panels(SITES)
    for number, checkpoint in enumerate(checkpoints):
        for column, site in enumerate(SITES, start=1):
            layers = [layer.top_share for layer in checkpoint.attentions(site) if layer.top_share]
            if layers:
                percents = list(layers[0])
                shares = [mean_over_heads([mean_over_heads(layer[p]) for layer in layers]) for p in percents]
                _add_line(figure, column, checkpoint.name, [float(p) for p in percents], shares, _color(number))
    ticks = {"tickvals": [float(p) for p in TICKS], "ticktext": TICKS}
    return figure.update_xaxes(title="top p % of the visible keys", type="log", dtick=None, **ticks)


def plot_alignment_errors(
    checkpoints: Sequence[CheckpointAnalysis], select: Callable[[AlignmentMetrics, str], list[AlignmentErrors]]
) -> go.Figure:
    """Plot alignment error rates by layer, one panel for normal and one for shifted queries.

    Args:
        checkpoints: the analyses.
        select: returns the errors to plot by layer, given all of a checkpoint and the choice of query.
    """
    figure = _make_panels(QUERIES)
    for number, checkpoint in enumerate(checkpoints):
        if checkpoint.alignment is None:
            continue
        for column, query in enumerate(QUERIES, start=1):
            errors = select(checkpoint.alignment, query)
            x = list(range(1, len(errors) + 1))
            for label, field, dash in (("best head", "best_head", "solid"), ("all heads", "mean_weights", "dash")):
                y = [getattr(layer, field) for layer in errors]
                _add_line(figure, column, f"{checkpoint.name}, {label}", x, y, _color(number), dash)
    return figure


def _make_panels(titles: Sequence[str]) -> go.Figure:
    figure = make_subplots(1, len(titles), subplot_titles=titles, shared_yaxes=True)
    figure.update_xaxes(title="layer", dtick=1, title_standoff=6)
    figure.update_yaxes(rangemode="tozero")
    margin = {"l": 50, "t": 40, "b": 50, "r": 20}
    return figure.update_layout(height=360, template="plotly_white", margin=margin, font={"color": "#3e4c59"})


def _color(number: int) -> str:
    return COLORS[number % len(COLORS)]


def _add_line(
    figure: go.Figure, column: int, label: str, x: Sequence[float], y: Sequence[float | None], color: str,
    dash: str = "solid", mode: str = "lines+markers",
) -> None:  # fmt: skip
    """Add a line to a panel, with one legend entry per label in the whole figure; nothing if y has no value."""
    if all(value is None for value in y):
        return
    label = html.escape(label)  # Plotly interprets labels as HTML
    is_new = label not in {trace.name for trace in figure.data}
    line = {"color": color, "dash": dash}
    trace = go.Scatter(x=x, y=y, name=label, legendgroup=label, mode=mode, line=line, showlegend=is_new)
    figure.add_trace(trace, 1, column)
