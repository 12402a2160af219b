"""The figures of report.html: measures by layer, with the papers' values."""

import html
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.resources import files
from itertools import chain
from typing import Any, NamedTuple

import plotly.graph_objects as go
from plotly.colors import qualitative
from plotly.subplots import make_subplots

from relumt.analysis.record import CheckpointAnalysis, PerHead, mean_over_heads
from relumt.plugin.options import SITES
from relumt.printed_results import printed_values

COLORS = qualitative.Plotly
DASHES = ("dot", "dashdot", "longdash", "longdashdot")
QUERIES = ("normal", "shifted")
STACKS = ("encoder", "decoder")
TICKS = ("0.1", "0.2", "0.5", "1", "2", "5", "10", "20", "50")
"""Percentages of keys that the axis of top shares is labeled with; a logarithmic axis would read 1 2 5 10 2 5."""

Figures = dict[str, tuple[str, str, go.Figure]]
"""Figure by HTML id: title, explanation and the figure."""

FIGURES: dict[str, dict[str, Any]] = tomllib.loads((files(__package__) / "figures.toml").read_text(encoding="utf-8"))


class Line(NamedTuple):
    """A line of a panel.

    Attributes:
        suffix: what is added to the checkpoint's name.
        dash: as Plotly names it.
        x, y: the points.
        values: values whose range is drawn at each point, such as those of the heads; empty for no range.
    """

    suffix: str
    dash: str
    x: list[float]
    y: list[float | None]
    values: Sequence[PerHead] = ()


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
    draw, panels = next((draw, panels) for key, draw, panels in DRAWN if key in described)
    panels = described.get("panels", panels)
    figure = make_subplots(1, len(panels), subplot_titles=panels, shared_yaxes=True)
    figure.update_xaxes(title="layer", dtick=1, title_standoff=6)
    figure.update_yaxes(rangemode="tozero", title_standoff=8)
    figure.update_yaxes(title=described["axis"], col=1)
    margin = {"l": 60, "t": 40, "b": 50, "r": 20}
    figure.update_layout(height=360, template="plotly_white", margin=margin, font={"color": "#3e4c59"})
    for number, checkpoint in enumerate(checkpoints):
        for column, panel in enumerate(panels, start=1):
            for line in draw(checkpoint, panel, described):
                _add_line(figure, column, checkpoint.name, line, COLORS[number % len(COLORS)])
    if "top" in described:
        ticks = {"tickvals": [float(p) for p in TICKS], "ticktext": TICKS}
        figure.update_xaxes(title=described["top"], type="log", dtick=None, **ticks)
    return figure


def draw_measures(checkpoint: CheckpointAnalysis, site: str, described: Mapping[str, str]) -> Iterator[Line]:
    """Yield one or two measures by layer of a site, with the range over heads."""
    for key, dash, suffix in (("solid", "solid", ""), ("dashed", "dash", f", {described.get('suffix')}")):
        if key not in described:
            continue
        found = [getattr(layer, described[key]) for layer in checkpoint.attentions(site)]
        if "top" in described:
            yield _line_of_top_shares([shares for shares in found if shares])
            continue
        y = [mean_over_heads(value) if isinstance(value, list) else value for value in found]
        values = [value if isinstance(value, list) else [] for value in found] if key == "solid" else []
        yield Line(suffix, dash, _count_layers(y), y, values)


def draw_feedforward(checkpoint: CheckpointAnalysis, stack: str, described: Mapping[str, str]) -> Iterator[Line]:
    """Yield a measure of the feed-forward layers of the encoder or decoder by layer, or by percentage of slots."""
    found = [getattr(layer, described["feedforward"]) for layer in checkpoint.feedforwards(stack)]
    if "top" in described:
        by_slot = [{p: [share] for p, share in shares.items()} for shares in found if shares]
        yield _line_of_top_shares(by_slot)
    else:
        yield Line("", "solid", _count_layers(found), found)


def _line_of_top_shares(layers: Sequence[Mapping[str, PerHead]]) -> Line:
    """Return the mean and the range over layers and heads of shares of the top p %, by p."""
    percentages = list(layers[0]) if layers else []
    y = [mean_over_heads([mean_over_heads(layer[p]) for layer in layers]) for p in percentages]
    return Line("", "solid", list(map(float, percentages)), y, [[*chain(*(x[p] for x in layers))] for p in percentages])


def draw_errors(checkpoint: CheckpointAnalysis, query: str, described: Mapping[str, str]) -> Iterator[Line]:
    """Yield alignment error rates by layer for a choice of query, with the range over heads."""
    layers = checkpoint.alignment.errors(query, described["errors"]) if checkpoint.alignment else []
    x = _count_layers(layers)
    yield Line(", best head", "solid", x, [layer.best_head for layer in layers], [[*layer.heads] for layer in layers])
    yield Line(", all heads", "dash", x, [layer.mean_weights for layer in layers])


def _count_layers(layers: Sequence[object]) -> list[float]:
    return list(range(1, len(layers) + 1))


DRAWN: tuple[tuple[str, Callable[..., Iterator[Line]], Sequence[str]], ...] = (
    ("errors", draw_errors, QUERIES), ("feedforward", draw_feedforward, STACKS), ("solid", draw_measures, SITES),
)  # fmt: skip
"""Key in figures.toml of what a figure shows, the function that draws it, and the panels."""


def paper_values() -> dict[str, dict[str, PerHead]]:
    """Return what the papers print, by figure and label: a value for each panel."""
    return {
        "entropy": {
            "[RF] softmax": [printed_values("RF", "table3", "softmax")["H(s)"]] * len(SITES),
            "[RF] ReLUFormer": [printed_values("RF", "table5", "reluformer")["entropy"]] * len(SITES),
        },
        "feedforward_variance": {
            f"[RF] {label}": [printed_values("RF", "table1", row)["variance ratio FFN output / residual"]] * len(STACKS)
            for label, row in {"ReLU": "relu", "softmax": "softmax", "softmax, LayerNorm": "softmax_ln"}.items()
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
            line = Line("", dash, [1, last_layer], [value, value])
            _add_line(figure, column, label, line, "gray", mode="lines")
    return figure


def _add_line(figure: go.Figure, column: int, name: str, line: Line, color: str, mode: str = "lines+markers") -> None:
    """Add a line to a panel, with one legend entry per label in the whole figure; nothing if y has no value."""
    if all(value is None for value in line.y):
        return
    label = html.escape(name + line.suffix)  # Plotly interprets labels as HTML
    is_new = label not in {trace.name for trace in figure.data}
    trace = go.Scatter(
        x=line.x, y=line.y, name=label, legendgroup=label, mode=mode, line={"color": color, "dash": line.dash},
        error_y=_range_bars(line), showlegend=is_new,
    )  # fmt: skip
    figure.add_trace(trace, 1, column)


def _range_bars(line: Line) -> dict[str, Any] | None:
    """Return bars from the smallest to the largest value of each point; None if each has a single value at most."""
    known = [[value for value in values if value is not None] for values in line.values]
    if max(map(len, known), default=0) < 2:
        return None
    points = list(zip(known, line.y, strict=True))
    up = [max(values) - y if values and y is not None else None for values, y in points]
    down = [y - min(values) if values and y is not None else None for values, y in points]
    return {"type": "data", "symmetric": False, "array": up, "arrayminus": down, "thickness": 1, "width": 3}
