"""HTML pages that open offline: report.html of `relumt analyze`, and the explorer of attention maps. Shapes: H T S."""

import base64
import json
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from plotly.offline import get_plotlyjs
from torch import Tensor
from torch.nn.functional import max_pool2d

from relumt.analysis.attention_maps import SentenceMaps, save_maps
from relumt.analysis.plots import write_plots
from relumt.analysis.record import AnalysisFile, CheckpointAnalysis, mean_over_heads
from relumt.analysis.report_figures import QUERIES, STACKS, build_figures
from relumt.attention.metrics import attention_metrics as metrics
from relumt.attention.metrics.words import join_words
from relumt.files import file_sha256, write_text_atomically
from relumt.plugin.options import SITES
from relumt.runs.inference.loaded_model import LoadedModel
from relumt.runs.record import find_record_of_checkpoint

REPORT = "report.html"

MAX_NUMBERS = 2**25
"""Numbers in the maps of a page, 90 MB as base64; if there are more, the largest maps are pooled."""

SUMMARIZED = ("sparsity", "null_rate", "sink_rate", "entropy")
"""Measures of attention in the summary table."""

FEEDFORWARD_SUMMARIZED = ("variance_ratio", "null_rate", "anisotropy")
"""Measures of feed-forward layers in the summary table."""

BLEU = {"bleu_tokenized": "BLEU tok", "bleu_detokenized": "BLEU detok"}
"""Scores in the table of models, and their titles."""

Cells = dict[tuple[str, str, str], str]
"""A checkpoint's cells in the summary tables, by table, group of rows, and measure."""


def write_plots_and_report(analysis: AnalysisFile, maps: Sequence[list[SentenceMaps]], out: Path) -> Path:
    """Write the plots, maps-N.pt and the report to `out`; return the path of the report.

    Files maps-N.pt of an earlier analysis of more checkpoints are removed.

    Args:
        analysis: the measures of all checkpoints.
        maps: the attention maps of each checkpoint.
        out: folder for the files.
    """
    write_plots(analysis.checkpoints, maps, out)
    for path in out.glob("maps-*.pt"):
        path.unlink()
    for number, sentences in enumerate(maps, start=1):
        save_maps(sentences, out / f"maps-{number}.pt")
    checkpoints = analysis.checkpoints
    cells = list(map(summarize, checkpoints))
    corpora = ", ".join(dict.fromkeys(Path(checkpoint.data).name for checkpoint in checkpoints))
    _write_page(
        out / REPORT,
        title=f"{', '.join(c.name for c in checkpoints)} on {corpora}, subset “{analysis.subset}”",
        command="analyze",
        models=[describe_model(c.name, c.path, c.data, c.sha256, c.num_parameters) for c in checkpoints],
        checkpoints=checkpoints,
        summary=cells,
        tables=group_measures(key for key in cells[0] if any(found[key] for found in cells)),
        figures=[
            {"id": name, "title": title, "text": text, "json": figure.to_json()}
            for name, (title, text, figure) in build_figures(checkpoints).items()
        ],
        plotly=get_plotlyjs(),
        maps=encode_models([(c.name, sentences) for c, sentences in zip(checkpoints, maps, strict=True)]),
    )
    return out / REPORT


def write_explorer(name: str, loaded: LoadedModel, maps: Sequence[SentenceMaps], path: Path) -> None:
    """Write a page with the attention maps of a model, which is labeled `name`."""
    sha256, data = file_sha256(loaded.path), str(loaded.task.cfg.data)
    model = describe_model(name, str(loaded.path), data, sha256, loaded.num_parameters)
    _write_page(
        path, title=f"Attention of {name}", command="attend", models=[model], figures=[],
        maps=encode_models([(name, maps)]),
    )  # fmt: skip


def describe_model(name: str, path: str, data: str, sha256: str, num_parameters: int) -> dict[str, Any]:
    """Return what the table of models says about a checkpoint; its BLEU if its run was scored with its weights."""
    record = find_record_of_checkpoint(Path(path))
    evaluation = record.evaluations.get("test") if record else None
    is_scored = evaluation is not None and evaluation.setup.checkpoint_sha256 == sha256
    scores = evaluation.scores if evaluation is not None and is_scored else {}
    return {
        "name": name,
        "trained": f"{record.dataset}, {'–'.join(record.provenance.dictionaries)}" if record else "",
        "num_parameters": num_parameters,
        "scores": {title: scores[metric] for metric, title in BLEU.items() if metric in scores},
        "path": path,
        "data": data,
        "sha256": sha256,
    }


def _write_page(path: Path, models: Sequence[dict[str, Any]], **values: Any) -> None:
    """Write a page about these models, in which every value is escaped unless the template says otherwise."""
    scores = [title for title in BLEU.values() if any(title in model["scores"] for model in models)]
    environment = Environment(
        loader=PackageLoader("relumt.analysis", "templates"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters["cite"] = link_papers
    write_text_atomically(path, environment.get_template("page.html").render(values, models=models, scores=scores))


def link_papers(text: str) -> Markup:
    """Return a text as HTML in which each [RF] and [RL] links to the list of papers."""
    return Markup(re.sub(r"\[(RF|RL)\]", r'<a href="#paper-\1">[\1]</a>', str(escape(text))))


def summarize(checkpoint: CheckpointAnalysis) -> Cells:
    """Return a checkpoint's cells of the summary tables: means over layers and heads, "" if there is no value."""
    row = {}
    for site in SITES:
        for measure in SUMMARIZED:
            layers = [mean_over_heads(getattr(layer, measure)) for layer in checkpoint.attentions(site)]
            row["attention", site, measure.replace("_", " ")] = _format_mean(layers)
    for stack in STACKS:
        for measure in FEEDFORWARD_SUMMARIZED:
            values = [getattr(layer, measure) for layer in checkpoint.feedforwards(stack)]
            row["feed-forward", stack, measure.replace("_", " ")] = _format_mean(values)
    for query in QUERIES:
        for label, kind in (("weights", "layers"), ("norms", "norm_layers")):
            errors = checkpoint.alignment.errors(query, kind) if checkpoint.alignment else []
            for column, field in (("AoL", "mean_weights"), ("AoH", "best_head")):
                cell = f"{mean(getattr(layer, field) for layer in errors):.1f}" if errors else ""
                row["alignment errors", f"{query}, {label}", column] = cell
    return row


def _format_mean(layers: list[float | None]) -> str:
    average = mean_over_heads(layers)
    return "" if average is None else f"{average:z.3f}"


def group_measures(keys: Iterable[tuple[str, str, str]]) -> dict[str, dict[str, list[str]]]:
    """Return the groups of rows and the measures of each summary table, in order."""
    tables: dict[str, dict[str, list[str]]] = defaultdict(lambda: {"groups": [], "measures": []})
    for table, *names in keys:
        for known, name in zip(tables[table].values(), names, strict=True):
            if name not in known:
                known.append(name)
    return tables


def encode_models(models: Sequence[tuple[str, Sequence[SentenceMaps]]]) -> str:
    """Return the maps of models with these labels as JSON for the explorer."""
    every_map = [weights for _, maps in models for sentence in maps for weights in sentence.maps.values()]
    limit = share_room([weights[0].numel() * 2 * (len(weights) + 1) for weights in every_map], MAX_NUMBERS)
    return json.dumps(
        [{"name": name, "sentences": [_encode_sentence(sentence, limit) for sentence in maps]} for name, maps in models]
    )


def share_room(sizes: Sequence[int], room: int) -> int:
    """Return the limit that makes the sum of min(size, limit) as large as `room` allows: small sizes are kept whole."""
    for rank, size in enumerate(sorted(sizes)):
        limit = room // (len(sizes) - rank)
        if size > limit:
            return limit
        room -= size
    return max(sizes, default=0)


def _encode_sentence(sentence: SentenceMaps, limit: int) -> dict[str, Any]:
    """Encode a sentence; each map is pooled by the smallest factor that leaves at most `limit` numbers."""
    maps = []
    for module, weights in sentence.maps.items():
        norms = None
        if module in sentence.norms:
            norms = torch.cat((sentence.norms[module], sentence.joint_norms[module][None]))
        together = torch.cat((weights, weights.mean(0, keepdim=True)))
        factor = max(1, math.ceil(math.sqrt(2 * together.numel() / max(limit, 1))))
        maps.append({
            "site": sentence.sites[module],
            "factor": factor,
            "measures": measure_map(weights, sentence.sites[module] == "decoder"),
            "weights": _encode_map(together, factor),
            "norms": None if norms is None else _encode_map(norms, factor),
        })  # fmt: skip
    names = ("index", "origin", "source", "decoder_input", "target")
    texts = {
        f"{side}_text": " ".join(join_words(getattr(sentence, side)[:-1], sentence.subwords))
        for side in ("source", "target")
    }
    return {name: getattr(sentence, name) for name in names} | texts | {"maps": maps}


def measure_map(weights: Tensor, is_causal: bool) -> dict[str, list[float | None]]:
    """Return measures of a map [H, T, S] by name: the mean over queries of each head, and last their mean over heads.

    None stands for a head without a value, as in analysis.json. Negative weights have a sparsity only.
    """
    rows = weights.transpose(0, 1)  # [H, T, S] -> [T, H, S]
    visible = torch.ones(weights.shape[1:], dtype=torch.bool)
    visible = visible.tril() if is_causal else visible
    values = {"sparsity": metrics.sparsity(rows, visible.sum(-1))}
    if not (weights < 0).any():
        values |= {
            "null rate": metrics.is_null_row(rows).float(),
            "entropy": metrics.entropy(rows),
            "sink rate": metrics.sink_rate(rows, visible),
            "largest share": metrics.normalize(rows).amax(-1),
        }
    heads = {name: [None if x != x else x for x in value.nanmean(0).tolist()] for name, value in values.items()}
    return {name: [*found, mean_over_heads(found)] for name, found in heads.items()}


def _encode_map(numbers: Tensor, factor: int) -> dict[str, Any]:
    """Encode a map [H, T, S] in two bytes per number, as bfloat16, one string per head.

    bfloat16 has 8 significant bits at any magnitude, so shares of rows of small weights are right, too. Only an exact 0
    becomes 0, so that zeros and null rows can be told from small weights. Of each block of `factor` × `factor` numbers
    the one of the largest magnitude is kept, so that single peaks stay and only a block of zeros is 0.
    """
    if factor > 1:
        highest, lowest = (sign * max_pool2d(sign * numbers, factor, ceil_mode=True) for sign in (1, -1))
        numbers = torch.where(highest >= -lowest, highest, lowest)
    rounded = numbers.bfloat16()
    smallest = numbers.sign().bfloat16() * torch.finfo(torch.bfloat16).tiny
    codes = torch.where(rounded == 0, smallest, rounded).view(torch.int16).numpy().astype("<i2")
    return {"shape": numbers.shape, "heads": [base64.b64encode(head.tobytes()).decode("ascii") for head in codes]}
