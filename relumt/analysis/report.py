"""HTML pages that open offline: report.html of `relumt analyze`, and the explorer of attention maps. Shapes: H T S."""

import base64
import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from jinja2 import Environment, PackageLoader, StrictUndefined
from plotly.offline import get_plotlyjs
from torch import Tensor

from relumt.analysis.attention_maps import SentenceMaps, save_maps
from relumt.analysis.plots import write_plots
from relumt.analysis.record import AnalysisFile, CheckpointAnalysis, mean_over_heads
from relumt.analysis.report_figures import QUERIES, build_figures
from relumt.files import write_text_atomically
from relumt.plugin.options import SITES

REPORT = "report.html"

SUMMARIZED = ("sparsity", "null_rate", "sink_rate", "entropy")
"""Measures of attention in the summary table."""

Columns = dict[tuple[str, str], str]
"""A checkpoint's cells in the summary tables by group of columns and by column."""


def write_plots_and_report(
    analysis: AnalysisFile, maps: Sequence[list[SentenceMaps]], out: Path, map_sentence: int | None = None
) -> Path:
    """Write the plots, maps-N.pt and the report to `out`; return the path of the report.

    Files maps-N.pt of an earlier analysis of more checkpoints are removed.

    Args:
        analysis: the measures of all checkpoints.
        maps: the attention maps of each checkpoint.
        out: folder for the files.
        map_sentence: sentence pair drawn in maps.png, counted from 1; None to choose one.
    """
    write_plots(analysis.checkpoints, maps, out, map_sentence)
    for path in out.glob("maps-*.pt"):
        path.unlink()
    for number, sentences in enumerate(maps, start=1):
        save_maps(sentences, out / f"maps-{number}.pt")
    checkpoints = analysis.checkpoints
    rows = list(map(summarize, checkpoints))
    filled = [key for key in rows[0] if any(row[key] for row in rows)]
    figures = [
        {"id": name, "title": title, "text": text, "json": figure.to_json()}
        for name, (title, text, figure) in build_figures(checkpoints).items()
    ]
    _write_page(
        out / REPORT,
        "report.html",
        subset=analysis.subset,
        unit=checkpoints[0].unit,
        checkpoints=checkpoints,
        summary=rows,
        site_groups=group_columns(key for key in filled if key[0] in SITES),
        error_groups=group_columns(key for key in filled if key[0] not in SITES),
        figures=figures,
        plotly=get_plotlyjs(),
        maps=encode_models((c.name, sentences) for c, sentences in zip(checkpoints, maps, strict=True)),
    )
    return out / REPORT


def write_explorer(title: str, name: str, maps: Sequence[SentenceMaps], path: Path) -> None:
    """Write a page with the attention maps of a model; `title` is its heading, `name` the label of the model."""
    _write_page(path, "attend.html", title=title, maps=encode_models([(name, maps)]))


def _write_page(path: Path, template: str, **values: Any) -> None:
    """Write a page in which every value is escaped unless the template says otherwise."""
    environment = Environment(
        loader=PackageLoader("relumt.analysis", "templates"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    write_text_atomically(path, environment.get_template(template).render(values))


def summarize(checkpoint: CheckpointAnalysis) -> Columns:
    """Return a row of the summary table: means over layers and heads by site, "" where a measure does not apply."""
    row = {}
    for site in SITES:
        for measure in SUMMARIZED:
            layers = [mean_over_heads(getattr(layer, measure)) for layer in checkpoint.attentions(site)]
            average = mean_over_heads(layers)
            row[site, measure.replace("_", " ")] = "" if average is None else f"{average:.3f}"
    for query in QUERIES:
        for label, kind in (("weights", "layers"), ("norms", "norm_layers")):
            errors = checkpoint.alignment.errors(query, kind) if checkpoint.alignment else []
            for column, field in (("AoL", "mean_weights"), ("AoH", "best_head")):
                cell = f"{mean(getattr(layer, field) for layer in errors):.1f}" if errors else ""
                row[f"{query}, {label}", column] = cell
    return row


def group_columns(keys: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Return the columns of each group of a summary table, in order."""
    groups: dict[str, list[str]] = defaultdict(list)
    for group, column in keys:
        groups[group].append(column)
    return groups


def encode_models(models: Iterable[tuple[str, Sequence[SentenceMaps]]]) -> str:
    """Return the maps of models with these labels as JSON for the explorer."""
    return json.dumps([{"name": name, "sentences": list(map(_encode_sentence, maps))} for name, maps in models])


def _encode_sentence(sentence: SentenceMaps) -> dict[str, Any]:
    names = ("index", "origin", "source", "decoder_input", "target")
    maps = [
        {
            "site": sentence.sites[module],
            "weights": _encode_map(weights),
            "norms": _encode_map(sentence.norms[module]) if module in sentence.norms else None,
            "joint_norms": _encode_map(sentence.joint_norms[module][None]) if module in sentence.norms else None,
        }
        for module, weights in sentence.maps.items()
    ]
    return {name: getattr(sentence, name) for name in names} | {"maps": maps}


def _encode_map(numbers: Tensor) -> dict[str, Any]:
    """Encode a map [H, T, S] in two bytes per number, as bfloat16.

    bfloat16 has 8 significant bits at any magnitude, so shares of rows of small weights are right, too. Only an exact 0
    becomes 0, so that zeros and null rows can be told from small weights.
    """
    rounded = numbers.bfloat16()
    smallest = numbers.sign().bfloat16() * torch.finfo(torch.bfloat16).tiny
    codes = torch.where(rounded == 0, smallest, rounded).view(torch.int16).numpy().astype("<i2")
    return {"shape": numbers.shape, "data": base64.b64encode(codes.tobytes()).decode("ascii")}
