"""report.html: the results of `relumt analyze` in one file that opens offline, with an explorer of attention maps."""

import base64
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from relumt.analysis.attention_maps import SentenceMaps, save_maps
from relumt.analysis.map_plot import plot_maps
from relumt.analysis.plots import plot_activations, plot_attention
from relumt.analysis.report_figures import QUERIES, build_figures
from relumt.atomic_output import write_text_atomically
from relumt.errors import UserError
from relumt.options import SITES
from relumt.runs.analysis_record import AnalysisFile, CheckpointAnalysis, mean_over_heads

try:
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from plotly.offline import get_plotlyjs
except ModuleNotFoundError as error:
    raise UserError(f"a report needs {error.name}; pip install 'relumt[report]'") from None

REPORT = "report.html"


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
        unit=checkpoints[0].unit,
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
