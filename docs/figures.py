"""Draw docs/figures/*.svg from docs/results/*.json: `make docs`."""

from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.container import BarContainer
from matplotlib.figure import Figure
from results import load

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

EXPERIMENTS = load("results")


def main(out: Path = OUT) -> None:
    """Write every figure to the folder `out`."""
    out.mkdir(exist_ok=True)
    with plt.rc_context(STYLE):
        for draw in (relu_init, ffn_slots, attention_cost, null_rate, document_attention, relu_or_softmax, gap):
            figure = draw()
            figure.savefig(out / f"{draw.__name__}.svg", bbox_inches="tight", metadata={"Date": None})
            plt.close(figure)


def numbers(experiment: str, table: str, row: str) -> list[list[float]]:
    """Return the cells of a row, each as a list of its numbers."""
    cells = EXPERIMENTS[experiment]["tables"][table]["rows"][row]
    return [
        [float(number) for number in (cell if isinstance(cell, list) else [cell])] for cell in cells if cell is not None
    ]


def columns(experiment: str, table: str) -> list[str]:
    """Return the names of a table's columns but the first, which names the rows."""
    return list(EXPERIMENTS[experiment]["tables"][table]["columns"])[1:]


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
    figure, (axes,) = panels(1, width=6.4, height=3.8)
    for name, label, color in (
        ("ReLUFormer, 0/1 (fairseq)", "ReLUFormer, fairseq's initialization (0/1)", ORANGE),
        ("ReLUFormer, 0.5/0.5", "ReLUFormer, init 0.5/0.5", PINK),
        ("ReLUFormer, 0.1/0.3 (default)", "ReLUFormer, init 0.1/0.3 (default)", BLUE),
        ("softmax", "softmax", GRAY),
    ):
        values = numbers("regularizer_sweep", "initialization", name)
        axes.plot(range(1, 5), values, marker="o", label=label, color=color)
    axes.set(xlabel="epoch", ylabel="validation nll (base 2)", xticks=range(1, 5))
    axes.legend()
    return figure


def ffn_slots() -> Figure:
    """[RF] Figure 1 and the variance ratio of [RF] Table 1, by number of FFN slots."""
    slots = [int(name) for name in columns("ffn_slots", "slots")]
    figure, (bleu, variance) = panels(2)
    for name, label, color in (
        ("relu", "ReLU", BLUE),
        ("softmax", "softmax", ORANGE),
        ("softmax_ln", "softmax + LayerNorm", GREEN),
    ):
        values = numbers("ffn_slots", "slots", name)
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
    lengths = [int(name.removeprefix("n = ")) for name in columns("attention_speed", "both")]
    systems = (
        ("1.5-entmax", PINK, "both", "entmax15"),
        ("sparsemax", ORANGE, "both", "sparsemax"),
        ("Inhibitor", GREEN, "both", "inhibitor"),
        ("ReLU, all at once", SKY, "both", "relu"),
        # Blocks start at 512 keys; at 128 all weights are computed at once.
        ("ReLU, in blocks", BLUE, "early_blocks", "no mask, forward + backward, in blocks"),
    )
    figure, (time, memory) = panels(2)
    for label, color, table, row in systems:
        values = numbers("attention_speed", table, row)  # time, low, high, memory
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
    sites = ("encoder", "decoder", "cross")
    by_site_of_rela_g = [numbers("sparsity_and_heads", "sparsity", site) for site in sites]

    def swept(constants: str) -> list[float]:
        """Return the null rates of one setting of γ, λ₁ and λ₂, by site."""
        return [share / 100 for share in numbers("regularizer_sweep", "constants", constants)[-1]]

    figure, (by_site, by_layer) = panels(2, ratios=(3, 1))
    bars = (
        ("ReLU, λ₁ = λ₂ = 0", ORANGE, swept("1, 0, 0")),
        ("ReLU, λ₁ = 0, λ₂ = 0.1", PINK, swept("1, 0, 0.1")),
        ("ReLU, λ₁ = 0.1, λ₂ = 0", SKY, swept("1, 0.1, 0")),
        ("ReLA-g", GREEN, [row[3][0] for row in by_site_of_rela_g]),
        ("ReLA-g, targets shuffled", GRAY, [row[4][0] for row in by_site_of_rela_g]),
    )
    width = 0.9 / len(bars)
    for index, (label, color, values) in enumerate(bars):
        places = [site + (index - (len(bars) - 1) / 2) * width for site in range(len(sites))]
        label_bars(by_site, by_site.bar(places, values, width, label=label, color=color))
    by_site.set_xticks(range(len(sites)), ["encoder", "decoder", "cross"])
    by_site.set_title("null rate by site, mean over layers")
    values = [rate for (rate,) in numbers("sparsity_and_heads", "decoder", "null rate")]
    label_bars(by_layer, by_layer.bar(columns("sparsity_and_heads", "decoder"), values, 0.5, color=GREEN))
    by_layer.set(title="ReLA-g, decoder", xlabel="layer")
    for axes in (by_site, by_layer):
        axes.grid(axis="x", visible=False)
        axes.set_ylim(0, 1.08)
    add_legend(figure, by_site, 3)
    return figure


def document_attention() -> Figure:
    """[RF] Figures 4 and 5: self-attention on documents, concentration and distance by layer."""
    figure, (share, distant) = panels(2)
    for model, color in (("softmax", ORANGE), ("ReLUFormer", BLUE)):
        for site, line in (("encoder", "-"), ("decoder", "--")):
            top_1, beyond_10 = numbers("document_translation", "attention", f"{model}, {site}")
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
    rows = EXPERIMENTS["relu_or_softmax"]["tables"]["scores"]["rows"]
    scores = {model: numbers("relu_or_softmax", "scores", model)[1:] for model in rows}  # without the loss
    softmax = scores.pop("softmax")
    scores = dict(sorted(scores.items(), key=lambda item: -mean(item[1][0])))
    figure, axes = panels(2, height=0.8 + 0.3 * len(scores))
    axes[1].sharex(axes[0])
    titles = ("Multi30k, validation BLEU", "Multi30k, test BLEU")
    for column, (panel, title) in enumerate(zip(axes, titles, strict=True)):
        panel.axvline(0, color=GRAY, linestyle="--", linewidth=1.5)
        for place, by_seed in enumerate(scores.values()):
            differences = [bleu - baseline for bleu, baseline in zip(by_seed[column], softmax[column], strict=True)]
            panel.plot(differences, [place] * len(differences), "o", color=BLUE, alpha=0.5, linestyle="none")
            if len(differences) >= MIN_SEEDS_OF_INTERVALS:
                panel.plot(mean(differences), place, "D", color=ORANGE, markersize=5)
                panel.plot(confidence_interval(differences), [place, place], color=ORANGE)
        panel.set_yticks(range(len(scores)), scores if panel is axes[0] else [""] * len(scores))
        panel.set(title=title, xlabel="difference from softmax, 95% interval", ylim=(len(scores) - 0.5, -0.5))
    return figure


def gap() -> Figure:
    """L1-normalized ReLU against softmax, both with QK norm, by fifths of the validation set from short to long."""
    figure, (loss, share) = panels(2)
    fifths = range(1, 6)

    def values(table: str, row: str) -> list[float]:
        return [value for (value,) in numbers("gap", table, row)]

    for axes, reference in ((loss, 0), (share, 1)):
        axes.axhline(reference, color=GRAY, linestyle="--", linewidth=1.5)
        axes.set(xlabel="fifth of the sentences, from short to long", xticks=fifths)
    for label, table, row, color in (
        ("Multi30k, p = 8", "by_length", "ReLU", SKY),
        ("IWSLT14, p = 8", "by_length_iwslt14", "ReLU", BLUE),
        ("IWSLT14, p = 8 with log n", "by_length_iwslt14", "ReLU with log n", GREEN),
        ("IWSLT14, p = 32 after softmax", "by_length_p32", "p = 32", ORANGE),
    ):
        (losses, shares), (softmax_losses, softmax_shares) = (
            [values(table, f"{measure}, {model}") for measure in ("loss", "largest share")]
            for model in (row, "softmax")
        )
        style = {"marker": "o", "color": color, "label": label}
        loss.plot(fifths, [ours - other for ours, other in zip(losses, softmax_losses, strict=True)], **style)
        share.plot(fifths, [ours / other for ours, other in zip(shares, softmax_shares, strict=True)], **style)
    loss.set_title("loss: difference from softmax")
    share.set_title("largest share in cross-attention, relative to softmax")
    add_legend(figure, share, 4)
    return figure


if __name__ == "__main__":
    main()
