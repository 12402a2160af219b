"""report.html: the results of `relumt analyze` in one file that opens offline, with an explorer of attention maps."""

import base64
import html
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from relumt.analysis.attention_maps import SentenceMaps, save_maps
from relumt.analysis.map_plot import plot_maps
from relumt.analysis.plots import plot_activations, plot_attention
from relumt.atomic_output import write_text_atomically
from relumt.errors import UserError
from relumt.options import SITES
from relumt.papers import printed_values
from relumt.runs.analysis_record import AnalysisFile, AttentionMetrics, CheckpointAnalysis, PerHead, mean_over_heads

try:
    import plotly.graph_objects as go
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from plotly.colors import qualitative
    from plotly.offline import get_plotlyjs
    from plotly.subplots import make_subplots
except ModuleNotFoundError as error:
    raise UserError(f"a report needs {error.name}; pip install 'relumt[report]'") from None

REPORT = "report.html"
COLORS = qualitative.Plotly
DASHES = ("dot", "dashdot", "longdash", "longdashdot")
QUERIES = ("normal", "shifted")

Figures = dict[str, tuple[str, str, go.Figure]]
"""Figure by HTML id: title, explanation and the figure."""


def write_plots_and_report(
    analysis: AnalysisFile, maps: Sequence[list[SentenceMaps]], out: Path, map_sentence: int | None = None
) -> Path:
    """Write the plots, maps-N.pt and the report to `out`; return the path of the report.

    Args:
        analysis: the measures of all checkpoints.
        maps: the attention maps of each checkpoint.
        out: folder for the files.
        map_sentence: sentence pair drawn in maps.png, counted from 1; None to choose one.
    """
    plot_activations(analysis.checkpoints, out)
    plot_attention(analysis.checkpoints, out)
    plot_maps({c.name: sentences for c, sentences in zip(analysis.checkpoints, maps, strict=True)}, out, map_sentence)
    for number, sentences in enumerate(maps, start=1):
        save_maps(sentences, out / f"maps-{number}.pt")
    return write_report(analysis, maps, out)


def write_report(analysis: AnalysisFile, maps: Sequence[list[SentenceMaps]], out: Path) -> Path:
    """Write report.html and return its path. The arguments are those of `write_plots_and_report`."""
    environment = Environment(
        loader=PackageLoader("relumt.analysis", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    checkpoints = analysis.checkpoints
    page = environment.get_template("report.html").render(
        subset=analysis.subset,
        checkpoints=checkpoints,
        summary=drop_empty_columns([summarize(checkpoint) for checkpoint in checkpoints]),
        figures=[
            {"id": name, "title": title, "text": text, "json": figure.to_json()}
            for name, (title, text, figure) in build_figures(checkpoints).items()
        ],
        plotly=get_plotlyjs(),
        maps=json.dumps([encode_maps(c.name, sentences) for c, sentences in zip(checkpoints, maps, strict=True)]),
    )
    path = out / REPORT
    write_text_atomically(path, page)
    return path


def summarize(checkpoint: CheckpointAnalysis) -> dict[str, str]:
    """Return a row of the summary table: means over layers and heads by site, "" where a measure does not apply."""
    row = {"name": checkpoint.name, "pairs": str(checkpoint.num_pairs)}
    for site in SITES:
        for measure in ("sparsity", "null_rate", "entropy"):
            layers = [mean_over_heads(getattr(layer, measure)) for layer in checkpoint.attentions(site)]
            average = mean_over_heads(layers)
            row[f"{site} {measure}"] = "" if average is None else f"{average:.3f}"
    alignment = checkpoint.alignment
    for query in QUERIES:
        row[f"{query} AoL"] = f"{alignment.aol(query):.1f}" if alignment else ""
        row[f"{query} AoH"] = f"{alignment.aoh(query):.1f}" if alignment else ""
    return row


def drop_empty_columns(table: Sequence[Mapping[str, str]]) -> list[dict[str, str]]:
    """Return the rows without columns that are "" in every row."""
    filled = [key for key in table[0] if any(row[key] != "" for row in table)]
    return [{key: row[key] for key in filled} for row in table]


def build_figures(checkpoints: Sequence[CheckpointAnalysis]) -> Figures:
    """Return the figures that at least one checkpoint has data for."""
    figures = {
        "sparsity": (
            "Sparsity by layer ([RL] Fig. 3)",
            "Share of the visible keys with a weight of exactly 0, mean over heads.",
            plot_by_layer(checkpoints, over_heads("sparsity")),
        ),
        "null_rate": (
            "Null rate by layer ([RL] Fig. 6)",
            "Share of queries that put no weight on any key. Dashed: each target paired with another source.",
            plot_by_layer(checkpoints, over_heads("null_rate"), over_heads("null_rate_shuffled"), "shuffled"),
        ),
        "entropy": (
            "Entropy by layer ([RF] Tables 3 and 5)",
            "Entropy of the normalized weights in nats; a query without weights counts as 0. Dashed: without such "
            "queries. Gray: means reported by [RF] for IWSLT14.",
            add_paper_values(
                plot_by_layer(checkpoints, over_heads("entropy"), over_heads("entropy_non_null"), "non-null"),
                {
                    "[RF] softmax": [printed_values("RF", "table3", "softmax")["H(s)"]] * len(SITES),
                    "[RF] ReLUFormer": [printed_values("RF", "table5", "reluformer")["entropy"]] * len(SITES),
                },
            ),
        ),
        "distant": (
            "Weight on distant tokens ([RF] Fig. 5)",
            "Share of a query's weight on keys more than 10 tokens away, in self-attention.",
            plot_by_layer(checkpoints, over_heads("distant_share")),
        ),
        "diversity": (
            "Head diversity by layer ([RL] Fig. 5, Table 6)",
            "Jensen–Shannon divergence of the heads' distributions in nats. Weights that do not sum to 1 are "
            "renormalized by a softmax (τ = 1). Gray: means over layers reported by [RL].",
            add_paper_values(
                plot_by_layer(checkpoints, lambda layer: layer.rela_diversity),
                {
                    "[RL] softmax": list(printed_values("RL", "table6", "softmax").values()),
                    "[RL] entmax15": list(printed_values("RL", "table6", "entmax15").values()),
                    "[RL] ReLA-g, τ = 1": list(printed_values("RL", "table6", "rela_g tau=1.00").values()),
                },
            ),
        ),
        "top_share": (
            "Centralization ([RF] Fig. 4)",
            "Share of the weight on the top p % of the visible keys, mean over layers and heads.",
            plot_top_shares(checkpoints),
        ),
        "alignment": (
            "Alignment error rate by layer ([RL] Fig. 4, Table 5)",
            "AER in percent: best head (solid) and weights averaged over heads (dashed). Gray: best head, shifted, "
            "mean over layers, as reported by [RL] for other data.",
            add_paper_values(
                plot_alignment_errors(checkpoints),
                {
                    f"[RL] {row}": [None, printed_values("RL", "table5", row)["shifted AoH"]]
                    for row in ("softmax", "sparsemax", "entmax15", "rela_g")
                },
            ),
        ),
    }
    return {name: figure for name, figure in figures.items() if figure[2].data}


def over_heads(measure: str) -> Callable[[AttentionMetrics], float | None]:
    """Return a function that computes the mean over heads of a measure of one attention module."""
    return lambda layer: mean_over_heads(getattr(layer, measure))


def plot_by_layer(
    checkpoints: Sequence[CheckpointAnalysis],
    measure: Callable[[AttentionMetrics], float | None],
    dashed: Callable[[AttentionMetrics], float | None] | None = None,
    dashed_suffix: str = "",
) -> go.Figure:
    """Plot a measure by layer, one panel per site and one line per checkpoint; `dashed` is a second measure."""
    figure = _make_panels(SITES)
    for number, checkpoint in enumerate(checkpoints):
        for column, site in enumerate(SITES, start=1):
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
    percents: list[str] = []
    for number, checkpoint in enumerate(checkpoints):
        for column, site in enumerate(SITES, start=1):
            layers = [layer.top_share for layer in checkpoint.attentions(site) if layer.top_share]
            if layers:
                percents = list(layers[0])
                shares = [mean_over_heads([mean_over_heads(layer[p]) for layer in layers]) for p in percents]
                _add_line(figure, column, checkpoint.name, [float(p) for p in percents], shares, _color(number))
    # Without explicit ticks, a logarithmic axis is labeled 1 2 5 10 2 5.
    ticks = {"tickvals": [float(p) for p in percents], "ticktext": percents}
    return figure.update_xaxes(title="top p % of the visible keys", type="log", dtick=None, **ticks)


def plot_alignment_errors(checkpoints: Sequence[CheckpointAnalysis]) -> go.Figure:
    """Plot alignment error rates by layer, one panel for normal and one for shifted queries."""
    figure = _make_panels(QUERIES)
    for number, checkpoint in enumerate(checkpoints):
        if checkpoint.alignment is None:
            continue
        for column, query in enumerate(QUERIES, start=1):
            errors = checkpoint.alignment.errors(query)
            x = list(range(1, len(errors) + 1))
            for label, field, dash in (("best head", "best_head", "solid"), ("mean weights", "mean_weights", "dash")):
                y = [getattr(layer, field) for layer in errors]
                _add_line(figure, column, f"{checkpoint.name}, {label}", x, y, _color(number), dash)
    return figure


def _make_panels(titles: Sequence[str]) -> go.Figure:
    figure = make_subplots(1, len(titles), subplot_titles=titles, shared_yaxes=True)
    figure.update_xaxes(title="layer", dtick=1)
    return figure.update_layout(height=360, margin={"t": 40, "b": 40})


def _color(number: int) -> str:
    return COLORS[number % len(COLORS)]


def _add_line(
    figure: go.Figure, column: int, label: str, x: Sequence[float], y: PerHead, color: str, dash: str = "solid",
    mode: str = "lines+markers",
) -> None:  # fmt: skip
    """Add a line to a panel, with one legend entry per label in the whole figure; nothing if y has no value."""
    if all(value is None for value in y):
        return
    label = html.escape(label)  # Plotly interprets labels as HTML
    is_new = label not in {trace.name for trace in figure.data}
    line = {"color": color, "dash": dash}
    trace = go.Scatter(x=x, y=y, name=label, legendgroup=label, mode=mode, line=line, showlegend=is_new)
    figure.add_trace(trace, 1, column)


def encode_maps(name: str, sentences: Sequence[SentenceMaps]) -> dict[str, Any]:
    """Return a checkpoint's maps as JSON for the explorer."""
    return {
        "name": name,
        "sentences": [
            {
                "index": sentence.index,
                "source": sentence.source,
                "decoder_input": sentence.decoder_input,
                "target": sentence.target,
                "maps": {
                    module: {"site": sentence.sites[module], **_quantize(weights.numpy())}
                    for module, weights in sentence.maps.items()
                },
            }
            for sentence in sentences
        ],
    }


def _quantize(weights: np.ndarray) -> dict[str, Any]:
    """Encode weights in one byte each, in units of the largest magnitude over 255.

    Only an exact 0 becomes 0, so that zeros and null rows can be told from small weights.
    """
    largest = float(np.abs(weights).max()) or 1.0
    scaled = np.rint(np.abs(weights) / largest * 255)
    scaled[(weights != 0) & (scaled == 0)] = 1
    return {
        "shape": weights.shape,
        "unit": largest / 255,
        "data": base64.b64encode(scaled.astype(np.uint8).tobytes()).decode("ascii"),
        "negative": base64.b64encode(np.packbits(weights < 0).tobytes()).decode("ascii") if (weights < 0).any() else "",
    }
