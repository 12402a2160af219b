"""report.html: what `relumt analyze` measured, in one file that opens offline, with an explorer of attention maps."""

import base64
import json
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

from relumt.analysis.attention_maps import Sentence
from relumt.analysis.plots import layers_of
from relumt.atomic_output import write_text_atomically
from relumt.errors import UserError
from relumt.options import SITES
from relumt.papers import papers, printed

try:
    import plotly.graph_objects as go
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from plotly.colors import qualitative
    from plotly.offline import get_plotlyjs
    from plotly.subplots import make_subplots
except ModuleNotFoundError as error:
    raise UserError(f"a report needs {error.name}; pip install 'relumt[report]'") from None

REPORT = "report.html"
COLOURS = qualitative.Plotly

PRINTED_ENTROPY = {
    "[RF] softmax": ("RF", "table3", "softmax", "H(s)"),
    "[RF] ReLUFormer": ("RF", "table5", "reluformer", "entropy"),
}
PRINTED_DIVERSITY = {"[RL] softmax": "softmax", "[RL] entmax15": "entmax15", "[RL] ReLA-g, τ = 1": "rela_g tau=1.00"}
PRINTED_ERRORS = ("softmax", "sparsemax", "entmax15", "rela_g")


def write_report(result: dict[str, Any], maps: list[list[Sentence]], out: Path) -> Path:
    """Write OUT/report.html; returns its path.

    Args:
        result: what analysis.json holds.
        maps: of every checkpoint.
        out: folder.
    """
    environment = Environment(
        loader=PackageLoader("relumt.analysis", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    analyses = result["checkpoints"]
    page = environment.get_template("report.html").render(
        subset=result["subset"],
        analyses=analyses,
        summary=without_empty_columns([summary(analysis) for analysis in analyses]),
        figures=[
            {"id": name, "title": title, "text": text, "json": figure.to_json()}
            for name, (title, text, figure) in figures(analyses).items()
        ],
        plotly=get_plotlyjs(),
        maps=json.dumps([encoded(analysis, of_one) for analysis, of_one in zip(analyses, maps, strict=True)]),
    )
    path = out / REPORT
    write_text_atomically(path, page)
    return path


def summary(analysis: dict[str, Any]) -> dict[str, Any]:
    """A row of the summary: means over layers and heads by site, "" where a measure does not apply."""
    row: dict[str, Any] = {"name": analysis["name"], "pairs": analysis["pairs"]}
    for site in SITES:
        layers = layers_of(analysis, site)
        for measure in ("sparsity", "null_rate", "entropy"):
            values = [value for layer in layers if (value := of_layer(layer[measure])) is not None]
            row[f"{site} {measure}"] = f"{mean(values):.3f}" if values else ""
    aligned = analysis["alignment"]
    for kind in ("normal", "shifted"):
        for of in ("AoL", "AoH"):
            row[f"{kind} {of}"] = f"{aligned[kind][of]:.1f}" if aligned else ""
    return row


def without_empty_columns(table: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows without the columns in which every one is ""."""
    filled = [key for key in table[0] if any(row[key] != "" for row in table)]
    return [{key: row[key] for key in filled} for row in table]


def figures(analyses: list[dict[str, Any]]) -> dict[str, tuple[str, str, go.Figure]]:
    """By name: title, what to know, and the figure; those that no checkpoint has data for are left out."""
    drawn = {
        "sparsity": (
            "Sparsity by layer ([RL] Fig. 3)",
            "Share of the visible keys with a weight of exactly 0, mean over heads.",
            by_layer(analyses, "sparsity"),
        ),
        "null_rate": (
            "Null rate by layer ([RL] Fig. 6)",
            "Share of queries that give no weight to any key; dashed: with the targets of other sentences.",
            by_layer(analyses, "null_rate", "null_rate_shuffled", "shuffled"),
        ),
        "entropy": (
            "Entropy by layer ([RF] Tables 3 and 5)",
            "Of the normalised weights, in nats; 0 for a null row, dashed: without those. Dotted: what [RF] prints for "
            "IWSLT14.",
            with_lines(
                by_layer(analyses, "entropy", "entropy_not_null", "not null"),
                {name: [printed(*where[:3])[where[3]]] * 3 for name, where in PRINTED_ENTROPY.items()},
            ),
        ),
        "distant": (
            "Weight on distant tokens ([RF] Fig. 5)",
            "Share of a query's weight on keys more than 10 tokens away, in self-attention.",
            by_layer(analyses, "distant_share"),
        ),
        "diversity": (
            "Diversity of heads ([RL] Fig. 5, Table 6)",
            "Jensen–Shannon divergence of the heads' distributions in nats; weights that do not sum to 1 are made to "
            "by a softmax (τ = 1). Dotted: [RL]'s means over layers.",
            with_lines(
                by_layer(analyses, "diversity"),
                {name: list(printed("RL", "table6", row).values()) for name, row in PRINTED_DIVERSITY.items()},
            ),
        ),
        "top_share": (
            "Centralisation ([RF] Fig. 4)",
            "Share of the weight that the top p % of the visible keys hold, mean over layers and heads.",
            top_shares(analyses),
        ),
        "alignment": (
            "Alignment error ([RL] Fig. 4, Table 5)",
            "AER in percent by layer: best head, and mean of the heads' weights (dashed). Dotted: [RL]'s means over "
            "layers, shifted, best head, on other data.",
            alignment_errors(analyses),
        ),
    }
    return {name: one for name, one in drawn.items() if one[2].data}


def by_layer(analyses: list[dict[str, Any]], measure: str, dashed: str = "", called: str = "") -> go.Figure:
    """A panel a site, a line a checkpoint: a measure's mean over heads by layer, and of another one, `called` so."""
    figure = make_subplots(1, len(SITES), subplot_titles=SITES, shared_yaxes=True)
    for number, analysis in enumerate(analyses):
        for column, site in enumerate(SITES, start=1):
            layers = layers_of(analysis, site)
            for name, dash in ((measure, "solid"), (dashed, "dash")):
                values = [of_layer(layer.get(name)) for layer in layers]
                if any(value is not None for value in values):
                    x, y = list(range(1, len(values) + 1)), values
                    label = analysis["name"] + (f", {called}" if dash == "dash" else "")
                    figure.add_trace(
                        go.Scatter(
                            x=x, y=y, name=label, legendgroup=label, mode="lines+markers",
                            line={"color": COLOURS[number % len(COLOURS)], "dash": dash},
                            showlegend=label not in {trace.name for trace in figure.data},
                        ), 1, column,
                    )  # fmt: skip
    figure.update_xaxes(title="layer", dtick=1)
    return figure.update_layout(height=360, margin={"t": 40, "b": 40})


def of_layer(value: Any) -> float | None:
    """A measure's mean over the heads that have one; of diversities the one of the weights or of τ = 1; else None."""
    if isinstance(value, dict):
        return value.get("p", value.get("1.0"))
    known = [of_head for of_head in value or () if of_head is not None]
    return mean(known) if known else None


def with_lines(figure: go.Figure, lines: dict[str, list[float]]) -> go.Figure:
    """Add a paper's values, one a site, as dotted lines; nothing to a figure without data."""
    if not figure.data:
        return figure
    for values, (name, dash) in zip(lines.values(), ((n, "dot") for n in lines), strict=True):
        for column, value in enumerate(values, start=1):
            figure.add_hline(
                value, line_dash=dash, line_color="grey", line_width=1, row=1, col=column,
                annotation={"text": f"{name} {value:g}", "font": {"size": 9}, "xanchor": "right"},
            )  # fmt: skip
    return figure


def top_shares(analyses: list[dict[str, Any]]) -> go.Figure:
    """A panel a site, a line a checkpoint: share of the weight by percentage of keys."""
    figure = make_subplots(1, len(SITES), subplot_titles=SITES, shared_yaxes=True)
    for number, analysis in enumerate(analyses):
        for column, site in enumerate(SITES, start=1):
            layers = [layer["top_share"] for layer in layers_of(analysis, site) if layer["top_share"]]
            if layers:
                percents = list(layers[0])
                shares = [of_layer([of_layer(layer[p]) for layer in layers]) for p in percents]
                figure.add_trace(
                    go.Scatter(
                        x=[float(p) for p in percents], y=shares, name=analysis["name"], legendgroup=analysis["name"],
                        line={"color": COLOURS[number % len(COLOURS)]}, mode="lines+markers",
                        showlegend=analysis["name"] not in {trace.name for trace in figure.data},
                    ), 1, column,
                )  # fmt: skip
    figure.update_xaxes(title="top p % of keys", type="log")
    return figure.update_layout(height=360, margin={"t": 40, "b": 40})


def alignment_errors(analyses: list[dict[str, Any]]) -> go.Figure:
    """A panel a kind of attention, two lines a checkpoint: AER of the best head and of the mean weights by layer."""
    kinds = ("normal", "shifted")
    figure = make_subplots(1, 2, subplot_titles=kinds, shared_yaxes=True)
    for number, analysis in enumerate(analyses):
        if not analysis["alignment"]:
            continue
        layers = list(analysis["alignment"]["layers"].values())
        for column, kind in enumerate(kinds, start=1):
            for of, dash in (("best", "solid"), ("average", "dash")):
                label = f"{analysis['name']}, {of}"
                figure.add_trace(
                    go.Scatter(
                        x=list(range(1, len(layers) + 1)), y=[layer[kind][of] for layer in layers], name=label,
                        legendgroup=label, mode="lines+markers", showlegend=column == 1,
                        line={"color": COLOURS[number % len(COLOURS)], "dash": dash},
                    ), 1, column,
                )  # fmt: skip
    if figure.data:
        for row in PRINTED_ERRORS:
            value = papers()["RL"]["table5"]["rows"][row][3]
            figure.add_hline(
                value, line_dash="dot", line_color="grey", line_width=1, row=1, col=2,
                annotation={"text": f"[RL] {row} {value:g}", "font": {"size": 9}},
            )  # fmt: skip
    figure.update_xaxes(title="layer", dtick=1)
    return figure.update_layout(height=360, margin={"t": 40, "b": 40})


def encoded(analysis: dict[str, Any], sentences: list[Sentence]) -> dict[str, Any]:
    """A checkpoint's maps for the explorer: a byte a weight, in units of the map's largest over 255.

    0 is exactly 0 and nothing else is, so that null rows and zeros are told from small weights.
    """
    return {
        "name": analysis["name"],
        "sentences": [
            {
                "number": sentence.number,
                "source": sentence.source,
                "given": sentence.given,
                "predicted": sentence.predicted,
                "maps": {
                    name: {"site": sentence.sites[name], **_bytes_of(weights.numpy())}
                    for name, weights in sentence.maps.items()
                },
            }
            for sentence in sentences
        ],
    }


def _bytes_of(weights: np.ndarray) -> dict[str, Any]:
    largest = float(np.abs(weights).max()) or 1.0
    scaled = np.rint(np.abs(weights) / largest * 255)
    scaled[(weights != 0) & (scaled == 0)] = 1
    return {
        "shape": weights.shape,
        "unit": largest / 255,
        "data": base64.b64encode(scaled.astype(np.uint8).tobytes()).decode("ascii"),
        "negative": base64.b64encode(np.packbits(weights < 0).tobytes()).decode("ascii") if (weights < 0).any() else "",
    }
