"""maps.png: cross-attention of several checkpoints on one sentence pair, side by side. Shapes: H heads, T S tokens."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from matplotlib import colormaps
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from torch import Tensor

from relumt.analysis.attention_maps import SentenceMaps
from relumt.analysis.plots import plain_text, remove_figure, save_figure
from relumt.console import print_status
from relumt.metrics.attention_metrics import normalize

MAX_COLUMNS = 3
MAX_LABEL = 24
READABLE_LENGTHS = range(8, 15)
"""Numbers of source and target tokens for which a map is easy to read."""

# The palest color is clearly not white, so that white can mean a weight of exactly 0.
BLUES = colormaps["Blues"]([0.12 + 0.88 * step / 255 for step in range(256)])
COLORS = ListedColormap(BLUES).with_extremes(bad="white")


def plot_maps(maps: Mapping[str, Sequence[SentenceMaps]], out: Path, number: int | None = None) -> None:
    """Write maps.png and maps.svg: the sharpest cross-attention head of each checkpoint.

    If no checkpoint has weights of that sentence pair, earlier plots are removed.

    Args:
        maps: sentence pairs of each checkpoint, by its label.
        out: folder for the plot.
        number: the sentence pair to draw, counted from 1; None for the first one that is easy to read.
    """
    index = choose_sentence(next(iter(maps.values()))) if number is None else number - 1
    drawn = {
        name: sentence
        for name, sentences in maps.items()
        for sentence in sentences
        if sentence.index == index and sentence.origin == "reference" and sentence.site_maps("cross")
    }
    if not drawn:
        remove_figure(out, "maps")
        if number is not None:
            print_status(f"no attention maps of pair {number}, so {out / 'maps.png'} is not written")
        return
    columns = min(len(drawn), MAX_COLUMNS)
    rows = -(-len(drawn) // columns)
    figure = Figure(figsize=(1.0 + 3.1 * columns, 4.0 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    for ax in axes.flat[len(drawn) :]:
        ax.set_axis_off()
    for number_drawn, (ax, (name, sentence)) in enumerate(zip(axes.flat, drawn.items(), strict=False)):
        image = _draw_map(ax, name, sentence, is_labeled=number_drawn % columns == 0)
    figure.colorbar(image, ax=axes, label="share of weight (white: exactly 0)", shrink=0.7, pad=0.01)
    save_figure(figure, out, "maps")


def choose_sentence(sentences: Sequence[SentenceMaps]) -> int:
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


def _draw_map(ax: Any, name: str, sentence: SentenceMaps, is_labeled: bool) -> Any:
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
