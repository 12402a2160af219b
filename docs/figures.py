"""Draw docs/figures/*.svg from the Markdown tables in docs/results/: `python docs/figures.py`.

Every number in a figure is read from a table of a page, so a figure and its table cannot disagree.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.container import BarContainer
from matplotlib.figure import Figure

from relumt.papers.seed_statistics import confidence_interval

DOCS = Path(__file__).resolve().parent
OUT = DOCS / "figures"

BLUE, ORANGE, GREEN, PINK, SKY, GRAY = "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#555555"
"""Okabe and Ito's palette, which color-blind readers can tell apart."""

STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",  # text stays text: small files, and readers can search it
    "svg.hashsalt": "relumt",  # the same input gives the same file
    "font.family": "sans-serif",
    "font.size": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "grid.color": "#dddddd",
    "legend.frameon": False,
    "lines.linewidth": 2,
    "figure.facecolor": "white",
}

MIN_SEEDS_OF_INTERVALS = 3
"""With two seeds, the t-value of an interval is 12.7, so its width is mostly chance."""

Table = list[list[str]]
"""Rows of cells; the first row is the header."""


def main(out: Path = OUT) -> None:
    """Write every figure to the folder `out`."""
    out.mkdir(exist_ok=True)
    with plt.rc_context(STYLE):
        for draw in (relu_init, ffn_slots, attention_cost, null_rate, document_attention, relu_or_softmax):
            figure = draw()
            figure.savefig(out / f"{draw.__name__}.svg", bbox_inches="tight", metadata={"Date": None})
            plt.close(figure)


def table(page: str, header: str) -> Table:
    """Return the table of docs/results/`page`.md whose header row starts with `header`.

    Raises:
        ValueError: if not exactly one table of the page starts so.
    """
    text = (DOCS / "results" / f"{page}.md").read_text(encoding="utf-8")
    found = [block for block in re.findall(r"(?:^\|.*\n)+", text, flags=re.MULTILINE) if block.startswith(header)]
    if len(found) != 1:
        raise ValueError(f"docs/results/{page}.md has {len(found)} tables that start with {header!r}, expected 1")
    header_row, _, *rows = found[0].splitlines()
    return [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in (header_row, *rows)]


def cells(rows: Table, *first: str) -> list[str]:
    """Return the other cells of the row that starts with the cells `first`; bold marks are ignored.

    Raises:
        ValueError: if not exactly one row starts so.
    """
    found = [row for row in rows if [cell.replace("*", "") for cell in row[: len(first)]] == list(first)]
    if len(found) != 1:
        raise ValueError(f"{len(found)} rows start with {first}, expected 1")
    return found[0][len(first) :]


def numbers(cell: str) -> list[float]:
    """Return the numbers of a cell, in order: "30.68 (0.398)" → [30.68, 0.398]."""
    return [float(number.replace("−", "-")) for number in re.findall(r"[−-]?\d+(?:\.\d+)?", cell)]


def panels(
    count: int, width: float = 4.6, height: float = 3.4, ratios: Sequence[float] | None = None
) -> tuple[Figure, list[Axes]]:
    """Return a figure with `count` panels side by side, of `width` inches each or in the given ratios."""
    size = (width * count, height)
    figure, axes = plt.subplots(1, count, figsize=size, width_ratios=ratios, layout="constrained", squeeze=False)
    return figure, list(axes[0])


def add_legend(figure: Figure, axes: Axes, columns: int) -> None:
    """Put one legend for all panels, which have the labels of `axes`, above them."""
    figure.legend(*axes.get_legend_handles_labels(), loc="outside upper left", ncols=columns)


def label_bars(axes: Axes, bars: BarContainer) -> None:
    """Write each bar's value above it."""
    axes.bar_label(bars, fmt="{:.3g}", fontsize=8, padding=2)


def relu_init() -> Figure:
    """Validation nll by epoch for softmax and for three initializations of ReLU attention."""
    runs = table("regularizer_sweep", "| model and flags")
    figure, (axes,) = panels(1, width=6.4, height=3.8)
    for name, label, color in (
        ("reluformer, init 0/1", "ReLUFormer, fairseq's initialization (0/1)", ORANGE),
        ("reluformer, init 0.5/0.5", "ReLUFormer, init 0.5/0.5", PINK),
        ("reluformer, init 0.1/0.3 (the default)", "ReLUFormer, init 0.1/0.3 (default)", BLUE),
        ("softmax", "softmax", GRAY),
    ):
        axes.plot(range(1, 5), [float(cell) for cell in cells(runs, name)], marker="o", label=label, color=color)
    axes.set(xlabel="epoch", ylabel="validation nll (base 2)", xticks=range(1, 5))
    axes.legend()
    return figure


def ffn_slots() -> Figure:
    """[RF] Figure 1 and the variance ratio of [RF] Table 1, by number of FFN slots."""
    rows = table("ffn_slots", "| slots | 32")
    slots = [int(cell) for cell in cells(rows, "slots")[:-1]]  # without [RF]'s column
    figure, (bleu, variance) = panels(2)
    for name, label, color in (
        ("relu", "ReLU", BLUE),
        ("softmax", "softmax", ORANGE),
        ("softmax_ln", "softmax + LayerNorm", GREEN),
    ):
        values = [numbers(cell) for cell in cells(rows, name)[:-1]]
        bleu.plot(slots, [value[0] for value in values], marker="o", label=label, color=color)
        variance.plot(slots, [value[1] for value in values], marker="o", label=label, color=color)
    for axes in (bleu, variance):
        axes.set_xscale("log", base=2)
        axes.set_xticks(slots, [f"{n:,}" for n in slots], rotation=60, ha="right", rotation_mode="anchor")
        axes.minorticks_off()
        axes.set_xlabel("FFN slots")
    bleu.set(title="BLEU, tokenized", ylim=(18, 33), yticks=(20, 24, 28, 32))
    variance.set(title="variance, output / residual", yscale="log", yticks=(0.01, 0.1, 1))
    variance.yaxis.set_major_formatter("{x:g}")
    add_legend(figure, bleu, 3)
    return figure


def attention_cost() -> Figure:
    """Time and peak memory of attention, forward and backward, relative to fused softmax, by length."""
    every = table("attention_speed", "| forward + backward")
    blocks = table("attention_speed", "| relu: pass")
    lengths = [int(cell.removeprefix("n = ")) for cell in every[0][1:]]
    systems = (
        ("1.5-entmax", PINK, cells(every, "entmax15")),
        ("sparsemax", ORANGE, cells(every, "sparsemax")),
        ("Inhibitor", GREEN, cells(every, "inhibitor")),
        ("ReLU, all at once", SKY, cells(every, "relu")),
        # Blocks start at 512 keys; at 128 all weights are computed at once.
        ("ReLU, in blocks", BLUE, cells(blocks, "no mask, forward + backward, in blocks")),
    )
    figure, (time, memory) = panels(2)
    for label, color, row in systems:
        values = [numbers(cell) for cell in row]  # time, interval, interval, memory
        measured = lengths[-len(values) :]
        time.plot(measured, [value[0] for value in values], marker="o", label=label, color=color)
        low, high = ([value[end] for value in values] for end in (1, 2))
        time.fill_between(measured, low, high, color=color, alpha=0.15, linewidth=0)
        memory.plot(measured, [value[-1] for value in values], marker="o", label=label, color=color)
    for axes, what in ((time, "time, forward + backward"), (memory, "peak memory")):
        axes.axhline(1, color=GRAY, linestyle="--", linewidth=1.5, label="softmax, fused")
        axes.set_xscale("log", base=2)
        axes.set_yscale("log", base=2)
        axes.set_xticks(lengths, [f"{n:,}" for n in lengths])
        axes.yaxis.set_major_formatter("{x:g}")
        axes.set(xlabel="sequence length", title=f"{what} (softmax = 1)")
    add_legend(figure, time, 3)
    return figure


def null_rate() -> Figure:
    """Null rate by site, for ReLA-g and ReLU with and without the regularizer; ReLA-g's by decoder layer."""
    rela_g = table("sparsity_and_heads", "| site")
    layers = table("sparsity_and_heads", "| decoder layer")
    sweep = table("regularizer_sweep", "| γ")
    sites = ("encoder", "decoder", "cross")

    def swept(norm_weight: str, entropy_weight: str) -> list[float]:
        """Return the null rates of one setting of λ₁ and λ₂ at γ = 1, by site."""
        return [share / 100 for share in numbers(cells(sweep, "1", norm_weight, entropy_weight)[-1])]

    figure, (by_site, by_layer) = panels(2, ratios=(3, 1))
    bars = (
        ("ReLU, λ₁ = λ₂ = 0", ORANGE, swept("0", "0")),
        ("ReLU, λ₁ = 0, λ₂ = 0.1", PINK, swept("0", "0.1")),
        ("ReLU, λ₁ = 0.1, λ₂ = 0", SKY, swept("0.1", "0")),
        ("ReLA-g", GREEN, [float(cells(rela_g, site)[3]) for site in sites]),
        ("ReLA-g, targets shuffled", GRAY, [float(cells(rela_g, site)[4]) for site in sites]),
    )
    width = 0.9 / len(bars)
    for index, (label, color, values) in enumerate(bars):
        places = [site + (index - (len(bars) - 1) / 2) * width for site in range(len(sites))]
        label_bars(by_site, by_site.bar(places, values, width, label=label, color=color))
    by_site.set_xticks(range(len(sites)), ["encoder", "decoder", "cross"])
    by_site.set_title("null rate by site, mean over layers")
    values = [float(cell) for cell in cells(layers, "null rate")]
    label_bars(by_layer, by_layer.bar(layers[0][1:], values, 0.5, color=GREEN))
    by_layer.set(title="ReLA-g, decoder", xlabel="layer")
    for axes in (by_site, by_layer):
        axes.grid(axis="x", visible=False)
        axes.set_ylim(0, 1.08)
    add_legend(figure, by_site, 3)
    return figure


def document_attention() -> Figure:
    """[RF] Figures 4 and 5: self-attention on documents, concentration and distance by layer."""
    rows = table("document_translation", "| | site")
    figure, (share, distant) = panels(2)
    for model, color in (("softmax", ORANGE), ("ReLUFormer", BLUE)):
        for site, line in (("encoder", "-"), ("decoder", "--")):
            top_1, _, beyond_10 = map(numbers, cells(rows, model, site))
            for axes, values in ((share, top_1), (distant, beyond_10)):
                axes.plot((1, 2, 3), values, line, marker="o", label=f"{model}, {site}", color=color)
    share.set_title("share of weight on the top 1% of keys")
    distant.set_title("share of weight more than 10 tokens away")
    for axes in (share, distant):
        axes.set(xlabel="layer", xticks=(1, 2, 3), ylim=(0, 1.02))
    add_legend(figure, share, 4)
    return figure


def relu_or_softmax() -> Figure:
    """Differences from softmax in BLEU on Multi30k: one dot per seed, and the mean with its 95% interval.

    Models are sorted by their mean BLEU on the validation set, over all of their seeds.
    """
    _, *runs = table("relu_or_softmax", "| model | seed | best validation loss")
    scores: dict[str, dict[int, list[float]]] = {}
    for model, seed, _, *bleu in runs:
        scores.setdefault(model, {})[int(seed)] = [float(cell) for cell in bleu[:2]]
    softmax = scores.pop("softmax")
    scores = dict(sorted(scores.items(), key=lambda item: -mean(bleu[0] for bleu in item[1].values())))
    figure, axes = panels(2, height=0.8 + 0.3 * len(scores))
    axes[1].sharex(axes[0])
    titles = ("Multi30k, validation BLEU", "Multi30k, test BLEU")
    for column, (panel, title) in enumerate(zip(axes, titles, strict=True)):
        panel.axvline(0, color=GRAY, linestyle="--", linewidth=1.5)
        for place, by_seed in enumerate(scores.values()):
            differences = [bleu[column] - softmax[seed][column] for seed, bleu in by_seed.items()]
            panel.plot(differences, [place] * len(differences), "o", color=BLUE, alpha=0.5, linestyle="none")
            if len(differences) >= MIN_SEEDS_OF_INTERVALS:
                panel.plot(mean(differences), place, "D", color=ORANGE, markersize=5)
                panel.plot(confidence_interval(differences), [place, place], color=ORANGE)
        panel.set_yticks(range(len(scores)), scores if panel is axes[0] else [""] * len(scores))
        panel.set(title=title, xlabel="difference from softmax, 95% interval", ylim=(len(scores) - 0.5, -0.5))
    return figure


if __name__ == "__main__":
    main()
