"""The figures of report.html: measures by layer, with the papers' values."""

import html
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from typing import Any

import plotly.graph_objects as go
from plotly.colors import qualitative
from plotly.subplots import make_subplots

from relumt.analysis.record import CheckpointAnalysis, PerHead, mean_over_heads
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

FIGURES: dict[str, dict[str, Any]] = tomllib.loads((files(__package__) / "figures.toml").read_text(encoding="utf-8"))


def build_figures(checkpoints: Sequence[CheckpointAnalysis]) -> Figures:
    """Return the figures that at least one checkpoint has data for."""
    printed = paper_values()
    figures = {
        name: (
            described["title"],
            described["text"],
            add_paper_values(plot_figure(described, checkpoints), printed.get(name, {})),
        )
        for name, described in FIGURES.items()
    }
    return {name: figure for name, figure in figures.items() if figure[2].data}


def plot_figure(described: Mapping[str, Any], checkpoints: Sequence[CheckpointAnalysis]) -> go.Figure:
    """Draw a figure that figures.toml describes, a line or two in each panel for each checkpoint."""
    panels = described.get("panels", QUERIES if "errors" in described else SITES)
    figure = make_subplots(1, len(panels), subplot_titles=panels, shared_yaxes=True)
    figure.update_xaxes(title="layer", dtick=1, title_standoff=6)
    figure.update_yaxes(rangemode="tozero")
    margin = {"l": 50, "t": 40, "b": 50, "r": 20}
    figure.update_layout(height=360, template="plotly_white", margin=margin, font={"color": "#3e4c59"})
    draw = draw_errors if "errors" in described else draw_measures if "solid" in described else draw_top_shares
    for number, checkpoint in enumerate(checkpoints):
        for column, panel in enumerate(panels, start=1):
            for suffix, dash, x, y in draw(checkpoint, panel, described):
                _add_line(figure, column, checkpoint.name + suffix, x, y, COLORS[number % len(COLORS)], dash)
    if draw is draw_top_shares:
        ticks = {"tickvals": [float(p) for p in TICKS], "ticktext": TICKS}
        figure.update_xaxes(title="top p % of the visible keys", type="log", dtick=None, **ticks)
    return figure


def draw_measures(checkpoint: CheckpointAnalysis, site: str, described: Mapping[str, str]) -> Iterator[Line]:
    """Yield one or two measures by layer of a site."""
    lines = (("solid", "solid", ""), ("dashed", "dash", f", {described.get('suffix')}"))
    for key, dash, suffix in lines[: 1 + ("dashed" in described)]:
        found = [getattr(layer, described[key]) for layer in checkpoint.attentions(site)]
        y = [mean_over_heads(value) if isinstance(value, list) else value for value in found]
        yield suffix, dash, range(1, len(y) + 1), y


def draw_top_shares(checkpoint: CheckpointAnalysis, site: str, _: Mapping[str, str]) -> Iterator[Line]:
    """Yield the share of the weight by percentage of keys of a site."""
    layers = [layer.top_share for layer in checkpoint.attentions(site) if layer.top_share]
    if layers:
        shares = [mean_over_heads([mean_over_heads(layer[p]) for layer in layers]) for p in layers[0]]
        yield "", "solid", list(map(float, layers[0])), shares


def draw_errors(checkpoint: CheckpointAnalysis, query: str, described: Mapping[str, str]) -> Iterator[Line]:
    """Yield alignment error rates by layer for a choice of query."""
    layers = checkpoint.alignment.errors(query, described["errors"]) if checkpoint.alignment else []
    x = range(1, len(layers) + 1)
    yield ", best head", "solid", x, [layer.best_head for layer in layers]
    yield ", all heads", "dash", x, [layer.mean_weights for layer in layers]


def paper_values() -> dict[str, dict[str, PerHead]]:
    """Return what the papers print, by figure and label: a value for each panel."""
    return {
        "entropy": {
            "[RF] softmax": [printed_values("RF", "table3", "softmax")["H(s)"]] * len(SITES),
            "[RF] ReLUFormer": [printed_values("RF", "table5", "reluformer")["entropy"]] * len(SITES),
        },
        "diversity": {
            f"[RL] {label}": list(printed_values("RL", "table6", row).values())
            for label, row in {"softmax": "softmax", "entmax15": "entmax15", "ReLA-g, τ = 1": "rela_g tau=1.00"}.items()
        },
        "alignment": {
            f"[RL] {row}": [None, printed_values("RL", "table5", row)["shifted AoH"]]
            for row in ("softmax", "sparsemax", "entmax15", "rela_g")
        },
    }


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
