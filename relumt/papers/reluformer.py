"""[RF], Shen et al. 2023: its tables and figures of attention, and sweeps over settings that it does not print.

In the presets small and smoke, one dataset stands in for all sentence-level corpora of a paper.
"""

from dataclasses import replace

from relumt.papers.experiments import DOCUMENTS, IWSLT, SMOKE_DOCUMENTS, WMT
from relumt.papers.figures import SiteFigure
from relumt.papers.measures import BLEU_TOKENIZED, ENTROPY, ENTROPY_NON_NULL, NULL_RATE, VALIDATION_LOSS
from relumt.papers.score_table import (
    Column,
    Rows,
    ScoreTable,
    TableRow,
    columns_on_one_corpus,
    columns_per_corpus,
    make_rows,
)

NULL_ROWS_NOTE = "a row without weight counts as entropy 0, so a dead attention looks like a concentrated one"

SELF_ATTENTIONS = make_rows(
    {
        "relu, no scale factor": "relu_alone",
        "relu, scale factor": "relu_unregularized",
        "relu, LayerNorm": "relu_layernorm",
    }
)
"""Rows of [RF] Table 2 after softmax, and that of [RF] section 4."""

ABLATIONS = make_rows(
    "reluformer",
    {
        "- scale factor": "relu_unscaled",
        "- regularization loss": "relu_unregularized",
        "- scale factor - regularization loss": "relu_alone",
    },
)
"""Rows of [RF] Table 5, and one without both parts."""

FAIRSEQ_INIT = ("--relu-initial-score", "0", "--relu-initial-gain", "1")
"""The projections of q and k start as fairseq initializes them."""


def from_fairseq_init(rows: Rows, baseline: str = "") -> Rows:
    """Return the same rows from fairseq's initialization.

    Args:
        rows: the rows without these flags.
        baseline: the one of them against whose variant the others are tested, "" for the baseline of the table.
    """
    suffix = ", fairseq's initialization"
    return {
        label + suffix: replace(
            row,
            paper_row=label,
            variant="fairseq-init",
            flags=FAIRSEQ_INIT,
            baseline=baseline + suffix if baseline and label != baseline else "",
        )
        for label, row in rows.items()
    }


FAIRSEQ_INIT_NOTE = (
    "the paper does not print the initialization, so its numbers stand beside our runs from the positive start "
    f"(docs/design.md) and from fairseq's ({' '.join(FAIRSEQ_INIT)})"
)

REGULARIZERS = (
    *((1.0, weight, weight) for weight in (0.0, 0.01, 0.1, 0.3)),
    *((gamma, 0.1, 0.1) for gamma in (0.5, 2.0)),
    (1.0, 0.1, 0.0),
    (1.0, 0.0, 0.1),
)
"""γ of [RF] Eq. 6, λ₁ and λ₂ of Eq. 7: one direction at a time from γ = 1, λ₁ = λ₂ = 0.1, and each λ alone."""


def regularizer_row(gamma: float, norm: float, entropy: float) -> TableRow:
    """Return the row with γ, λ₁ (weight of the norm term) and λ₂ (weight of the entropy term)."""
    flags = {"--relu-gamma": gamma, "--attention-norm-weight": norm, "--attention-entropy-weight": entropy}
    command_line = tuple(str(token) for flag in flags.items() for token in flag)
    return TableRow("reluformer", variant=f"gamma-{gamma:g}-norm-{norm:g}-entropy-{entropy:g}", flags=command_line)


FIGURE_DATASETS = {"paper": "europarl7_en_de_1024", "small": "europarl7_small_512", "smoke": SMOKE_DOCUMENTS}

PERCENTAGES = tuple(f"{tenths / 10:g}" for tenths in range(1, 16))
"""The percentages that the paper draws, 0.1 to 1.5."""

TABLES = (
    ScoreTable(
        "RF",
        "table2",
        rows={**make_rows("softmax"), **SELF_ATTENTIONS, **from_fairseq_init(SELF_ATTENTIONS)},
        columns=columns_on_one_corpus(IWSLT, {"BLEU": BLEU_TOKENIZED}, VALIDATION_LOSS),
        baseline="softmax",
        notes=(
            "no row has the regularizer",
            "relu, LayerNorm: section 4 of the paper calls LayerNorm in place of the scale factor worse, and prints "
            "no number",
            FAIRSEQ_INIT_NOTE,
        ),
    ),
    ScoreTable(
        "RF",
        "table3",
        rows=make_rows("softmax", {"relu": "relu_unregularized"}),
        columns=columns_on_one_corpus(IWSLT, {"H(s)": ENTROPY}, ENTROPY_NON_NULL, NULL_RATE),
        needs_analysis=True,
        notes=(
            "relu is without the regularizer, as in the paper's text; papers.json notes that 3.45 hardly fits that",
            NULL_ROWS_NOTE,
        ),
    ),
    ScoreTable(
        "RF",
        "table4",
        rows=make_rows({"transformer": "softmax"}, "sparsemax", "entmax15", {"rela": "rela_g"}, "reluformer"),
        columns=columns_per_corpus(
            BLEU_TOKENIZED, {"IWSLT14 De-En BLEU": IWSLT, "WMT14 En-De BLEU": WMT}, shown_in_small="IWSLT14 De-En BLEU"
        ),
        baseline="transformer",
        speed_benchmark="decoding.py --steps 40",
    ),
    ScoreTable(
        "RF",
        "table5",
        rows={**ABLATIONS, **from_fairseq_init(ABLATIONS, baseline="reluformer")},
        columns=columns_on_one_corpus(
            IWSLT, {"BLEU": BLEU_TOKENIZED, "entropy": ENTROPY}, VALIDATION_LOSS, ENTROPY_NON_NULL, NULL_RATE
        ),
        baseline="reluformer",
        needs_analysis=True,
        notes=(
            NULL_ROWS_NOTE,
            "without both parts it is ReLU alone, in the paper the row of Table 2 without scale factor",
            FAIRSEQ_INIT_NOTE,
            "ablations from fairseq's initialization are tested against reluformer from fairseq's initialization",
        ),
    ),
    ScoreTable(
        "RF",
        "table6",
        rows=make_rows({"transformer": "softmax"}, "sparsemax", "reluformer"),
        columns=[Column(datasets, BLEU_TOKENIZED, limit) for limit, datasets in DOCUMENTS.items()],
        baseline="transformer",
        notes=("d-BLEU of whole documents, tokenized; each column limits documents to its number of tokens",),
    ),
    ScoreTable(
        "RF",
        "sweep",
        caption="γ, λ₁ and λ₂ of ReLUFormer, [RF] Eq. 6 and 7",
        rows={
            f"γ = {gamma:g}, λ₁ = {norm:g}, λ₂ = {entropy:g}": regularizer_row(gamma, norm, entropy)
            for gamma, norm, entropy in REGULARIZERS
        },
        columns=columns_on_one_corpus(IWSLT, {}, VALIDATION_LOSS, BLEU_TOKENIZED),
        baseline="γ = 1, λ₁ = 0.1, λ₂ = 0.1",
    ),
    SiteFigure(
        "RF",
        "figure4",
        models=("softmax", "reluformer"),
        datasets=FIGURE_DATASETS,
        sites=("encoder", "decoder"),
        curves={"": ""},
        axis_label="share of the weight",
        percentages=PERCENTAGES,
        explanation="means over heads and layers; shares are interpolated between whole numbers of keys",
    ),
    SiteFigure(
        "RF",
        "figure5",
        models=("softmax", "reluformer"),
        datasets=FIGURE_DATASETS,
        curves={
            "more than 10 tokens away": "distant_share",
            "on stop words": "stop_word_share",
            "stop words among the keys": "stop_word_rate",
        },
        axis_label="share of the weight",
        sites=("encoder", "decoder"),
        explanation="stop words: NLTK's lists; uniform weights have the share that stop words have among the keys; "
        "null rows are left out",
        notes=("attention maps: relumt analyze RUN RUN --sentences 2 --out DIR, then open DIR/report.html",),
    ),
)
