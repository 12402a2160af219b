"""report.html: the results of `relumt analyze` in one file that opens offline, with an explorer of attention maps."""

import itertools
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import mean

from relumt.analysis.attention_maps import SentenceMaps, save_maps
from relumt.analysis.explorer import encode_models, page_templates
from relumt.analysis.map_plot import plot_maps
from relumt.analysis.plots import plot_activations, plot_attention
from relumt.analysis.report_figures import QUERIES, build_figures
from relumt.atomic_output import write_text_atomically
from relumt.errors import UserError
from relumt.options import SITES
from relumt.runs.analysis_record import AnalysisFile, CheckpointAnalysis, mean_over_heads

try:
    from plotly.offline import get_plotlyjs
except ModuleNotFoundError as error:
    raise UserError(f"a report needs {error.name}; run pip install '.[report]' in the checkout") from None

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
    plot_activations(analysis.checkpoints, out)
    plot_attention(analysis.checkpoints, out)
    plot_maps({c.name: sentences for c, sentences in zip(analysis.checkpoints, maps, strict=True)}, out, map_sentence)
    for number, sentences in enumerate(maps, start=1):
        save_maps(sentences, out / f"maps-{number}.pt")
    later = (out / f"maps-{number}.pt" for number in itertools.count(len(maps) + 1))
    for path in itertools.takewhile(Path.is_file, later):
        path.unlink()
    return write_report(analysis, maps, out)


def write_report(analysis: AnalysisFile, maps: Sequence[list[SentenceMaps]], out: Path) -> Path:
    """Write report.html and return its path. The arguments are those of `write_plots_and_report`."""
    checkpoints = analysis.checkpoints
    summary = drop_empty_columns([summarize(checkpoint) for checkpoint in checkpoints])
    page = (
        page_templates()
        .get_template("report.html")
        .render(
            subset=analysis.subset,
            unit=checkpoints[0].unit,
            checkpoints=checkpoints,
            summary=summary,
            site_groups=group_columns([key for key in summary[0] if key[0] in SITES]),
            error_groups=group_columns([key for key in summary[0] if key[0] not in SITES]),
            figures=[
                {"id": name, "title": title, "text": text, "json": figure.to_json()}
                for name, (title, text, figure) in build_figures(checkpoints).items()
            ],
            plotly=get_plotlyjs(),
            maps=encode_models([(c.name, sentences) for c, sentences in zip(checkpoints, maps, strict=True)]),
        )
    )
    path = out / REPORT
    write_text_atomically(path, page)
    return path


def summarize(checkpoint: CheckpointAnalysis) -> Columns:
    """Return a row of the summary table: means over layers and heads by site, "" where a measure does not apply."""
    row = {}
    for site in SITES:
        for measure in SUMMARIZED:
            layers = [mean_over_heads(getattr(layer, measure)) for layer in checkpoint.attentions(site)]
            average = mean_over_heads(layers)
            row[site, measure.replace("_", " ")] = "" if average is None else f"{average:.3f}"
    alignment = checkpoint.alignment
    for query in QUERIES:
        errors = alignment.errors(query) if alignment else []
        norm_errors = alignment.norm_errors(query) if alignment else []
        for kind, found in (("weights", errors), ("norms", norm_errors)):
            joint, best = ([getattr(layer, name) for layer in found] for name in ("mean_weights", "best_head"))
            row[f"{query}, {kind}", "AoL"] = f"{mean(joint):.1f}" if joint else ""
            row[f"{query}, {kind}", "AoH"] = f"{mean(best):.1f}" if best else ""
    return row


def drop_empty_columns(table: Sequence[Columns]) -> list[Columns]:
    """Return the rows without columns that are "" in every row."""
    filled = [key for key in table[0] if any(row[key] != "" for row in table)]
    return [{key: row[key] for key in filled} for row in table]


def group_columns(keys: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Return the columns of each group of a summary table, in order."""
    groups: dict[str, list[str]] = {}
    for group, column in keys:
        groups.setdefault(group, []).append(column)
    return groups
