"""Plots of an analysis, each as PNG and SVG. Shapes: H heads, T S tokens."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from matplotlib import colormaps
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from torch import Tensor

from relumt.analysis.record import CheckpointAnalysis
from relumt.attention.feedforward import FEEDFORWARDS
from relumt.attention.metrics.attention_metrics import normalize
from relumt.errors import printable
from relumt.files import atomic_file

if TYPE_CHECKING:
    from relumt.analysis.attention_maps import SentenceMaps  # imports fairseq

PLOTS = ("activations", "parameters", "maps")
PLOT_FORMATS = ("png", "svg")

SCORE_RANGE = (-4.0, 4.0)
"""Range of scores over which activation functions are drawn."""

MAX_COLUMNS = 3
MAX_LABEL = 24
READABLE_LENGTHS = range(8, 15)
"""Numbers of source and target tokens for which a map is easy to read."""

# The palest color is clearly not white, so that white can mean a weight of exactly 0.
BLUES = colormaps["Blues"]([0.12 + 0.88 * step / 255 for step in range(256)])
COLORS = ListedColormap(BLUES).with_extremes(bad="white")


def plain_text(text: str) -> str:
    """Return a label for which matplotlib draws exactly this text: no mathematics between $, no control characters."""
    return printable(text).replace("$", r"\$")


def save_figure(figure: Figure, out: Path, name: str) -> None:
    """Write a figure to OUT/NAME.png and OUT/NAME.svg."""
    for extension in PLOT_FORMATS:
        with atomic_file(out / f"{name}.{extension}") as unfinished:
            figure.savefig(unfinished, dpi=150, format=extension)


def write_plots(analyses: Sequence[CheckpointAnalysis], maps: Sequence[Sequence["SentenceMaps"]], out: Path) -> None:
    """Write the plots that the analyses have data for, and remove those that an earlier analysis left.

    Args:
        analyses: the measures of all checkpoints.
        maps: the attention maps of each checkpoint.
        out: folder for the plots.
    """
    drawn = draw_activations(analyses)
    drawn |= draw_maps({found.name: own for found, own in zip(analyses, maps, strict=True)})
    for name in PLOTS:
        if name in drawn:
            save_figure(drawn[name], out, name)
            continue
        for extension in PLOT_FORMATS:
            (out / f"{name}.{extension}").unlink(missing_ok=True)


def draw_activations(analyses: Sequence[CheckpointAnalysis]) -> dict[str, Figure]:
    """Return the learned activation of every layer, and the learned parameters by layer, of checkpoints with them."""
    analyses = [analysis for analysis in analyses if analysis.activations]
    if not analyses:
        return {}
    curves, parameters = (Figure(figsize=(9, 3.6 * len(analyses)), layout="constrained") for _ in range(2))
    curve_axes = curves.subplots(len(analyses), 2, sharex=True, sharey="row", squeeze=False)
    parameter_axes = parameters.subplots(len(analyses), 1, squeeze=False)
    for analysis, axes, (parameter_ax,) in zip(analyses, curve_axes, parameter_axes, strict=True):
        for side, ax in zip(("encoder", "decoder"), axes, strict=True):
            _draw_curves(ax, {name: v for name, v in analysis.activations.items() if name.startswith(side)})
            ax.set_title(plain_text(f"{side}, {analysis.path}"), fontsize=8, wrap=True)
        _draw_parameters(parameter_ax, analysis.activations)
        parameter_ax.set_title(plain_text(analysis.path), fontsize=8, wrap=True)
    return {"activations": curves, "parameters": parameters}


def _draw_curves(ax: Any, layers: Mapping[str, dict[str, float]]) -> None:
    x = torch.linspace(*SCORE_RANGE, 401)
    for number, (name, parameters) in enumerate(layers.items()):
        with torch.no_grad():
            ax.plot(x, build_activation(parameters)(x), label=name.split(".")[-1], color=f"C{number}")
    ax.set(xlabel="score", ylabel="activation")
    if layers:
        ax.legend(title="layer", fontsize=7)


def _draw_parameters(ax: Any, layers: Mapping[str, dict[str, float]]) -> None:
    for name in sorted({name for parameters in layers.values() for name in parameters}):
        # The encoder's activation can have other parameters than the decoder's.
        ax.plot(range(len(layers)), [p.get(name, math.nan) for p in layers.values()], marker="o", label=name)
    ax.set_xticks(range(len(layers)), [name.replace(".layers.", " ") for name in layers], rotation=30, fontsize=8)
    ax.set(xlabel="layer", ylabel="learned value")
    ax.legend(fontsize=8)


def build_activation(parameters: Mapping[str, float]) -> torch.nn.Module:
    """Return the registered activation function that has parameters of these names, with these values."""
    factories = [factory for spec in FEEDFORWARDS.values() if (factory := spec().activation)]
    activations = (factory() for factory in factories)
    found = next(one for one in activations if dict(one.named_parameters()).keys() == parameters.keys())
    found.load_state_dict({name: torch.tensor([value]) for name, value in parameters.items()})
    return found


def draw_maps(maps: Mapping[str, Sequence["SentenceMaps"]]) -> dict[str, Figure]:
    """Return the sharpest cross-attention head of each checkpoint with weights of a pair of source and reference.

    Args:
        maps: sentence pairs of each checkpoint, by its label.
    """
    references = {name: [s for s in sentences if s.origin == "reference"] for name, sentences in maps.items()}
    index = choose_sentence(next(iter(references.values())))
    drawn = {
        name: sentence
        for name, sentences in references.items()
        for sentence in sentences
        if sentence.index == index and sentence.site_maps("cross")
    }
    if not drawn:
        return {}
    columns = min(len(drawn), MAX_COLUMNS)
    rows = -(-len(drawn) // columns)
    figure = Figure(figsize=(1.0 + 3.1 * columns, 4.0 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    for ax in axes.flat[len(drawn) :]:
        ax.set_axis_off()
    figure.supxlabel("source token (key)", fontsize=10)
    figure.supylabel("target token (query)", fontsize=10)
    for number_drawn, (ax, (name, sentence)) in enumerate(zip(axes.flat, drawn.items(), strict=False)):
        image = _draw_map(ax, name, sentence, is_labeled=number_drawn % columns == 0)
    figure.colorbar(image, ax=axes, label="share of weight (white: exactly 0)", shrink=0.7, pad=0.01)
    return {"maps": figure}


def choose_sentence(sentences: Sequence["SentenceMaps"]) -> int:
    """Return the index of the first sentence pair that is easy to read, if possible without split words."""
    readable = [s for s in sentences if len(s.source) in READABLE_LENGTHS and len(s.target) in READABLE_LENGTHS]
    unsplit = [s for s in readable if not any(token.endswith("@@") for token in (*s.source, *s.target))]
    return next((sentence.index for sentence in (*unsplit, *readable, *sentences)), 0)


def sharpest_head(layers: Sequence[Tensor]) -> tuple[int, int]:
    """Return the layer and head with the highest share of a query's weight on a single key, on average.

    Args:
        layers: weights [H, T, S] of each layer. Queries without weights count as 0.
    """
    # normalize expects [rows, heads, keys]
    sharpness = torch.stack([normalize(w.transpose(0, 1)).amax(-1).nan_to_num().mean(0) for w in layers])
    layer, head = divmod(int(sharpness.argmax()), sharpness.shape[1])
    return layer, head


def _draw_map(ax: Any, name: str, sentence: "SentenceMaps", is_labeled: bool) -> Any:
    """Draw one panel, with target tokens on the left if `is_labeled`; return the image for the color bar."""
    layers = [weights.abs() for weights in sentence.site_maps("cross")]
    layer, head = sharpest_head(layers)
    weights = layers[layer][head]  # [T, S]
    shares = normalize(weights[:, None])[:, 0].masked_fill(weights == 0, torch.nan)
    image = ax.imshow(shares.numpy(), cmap=COLORS, vmin=0, vmax=1, aspect="auto")
    zeros = (weights == 0).float().mean().item()
    label = name if len(name) <= MAX_LABEL else f"…{name[-MAX_LABEL:]}"
    ax.set_title(f"{plain_text(label)}: {zeros:.0%} exact zeros\nlayer {layer + 1}, head {head + 1}", fontsize=10)
    targets = list(map(plain_text, sentence.target)) if is_labeled else []
    ax.set_xticks(range(len(sentence.source)), list(map(plain_text, sentence.source)), rotation=90, fontsize=9)
    ax.set_yticks(range(len(sentence.target)), targets, fontsize=9)
    # Thin lines between the cells, so that neighboring zeros can be counted.
    ax.set_xticks([s - 0.5 for s in range(1, len(sentence.source))], minor=True)
    ax.set_yticks([t - 0.5 for t in range(1, len(sentence.target))], minor=True)
    ax.grid(which="minor", color="#e6e6e6", linewidth=0.5)
    ax.tick_params(which="both", length=0)
    return image
