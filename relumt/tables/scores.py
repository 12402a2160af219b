"""Declarations of the papers' tables of scores, entropies, alignment errors and head diversities.

[RF] is Shen et al. 2023, [RL] is Zhang, Titov and Sennrich 2021. In the presets small and smoke, one dataset stands in
for all sentence-level corpora of a paper.
"""

from relumt.runs.analysis_record import CheckpointAnalysis
from relumt.tables.experiments import ALIGNED, DOCUMENTS, IWSLT, SMALL, SMOKE, WMT, WMT_RELA, by_preset
from relumt.tables.measures import (
    BLEU_DETOKENIZED,
    BLEU_TOKENIZED,
    ENTROPY,
    ENTROPY_NON_NULL,
    NULL_RATE,
    VALIDATION_LOSS,
    Measure,
    analysis_measure,
    mean_over_layers,
)
from relumt.tables.score_table import Column, Rows, RowVariant, ScoreTable, TableRow

Columns = dict[str, tuple[Column, ...]]
"""Preset -> columns."""


def columns_on_one_corpus(dataset: str, measures: dict[str, Measure], *extra: Measure) -> Columns:
    """Return columns for measures by the paper's column, and for extra measures that the paper does not have."""
    return {
        preset: (
            *(Column(name, measure, column, preset == "paper") for column, measure in measures.items()),
            *(Column(name, measure) for measure in extra),
        )
        for preset, name in by_preset(dataset).items()
    }


def columns_per_corpus(measure: Measure, datasets: dict[str, str], shown_in_small: str = "") -> Columns:
    """Return one column per corpus for preset paper, else a single one.

    Args:
        measure: what is shown.
        datasets: the paper's column -> dataset.
        shown_in_small: the paper's column beside the single one, "" for none.
    """
    return {
        "paper": tuple(Column(name, measure, column, True) for column, name in datasets.items()),
        "small": (Column(SMALL, measure, shown_in_small),),
        "smoke": (Column(SMOKE, measure, shown_in_small),),
    }


def aer(query: str, average: str) -> Measure:
    """Return the alignment error rate in percent, mean over layers, of [RL] Table 5: AoL or AoH, normal or shifted."""

    def value(analysis: CheckpointAnalysis) -> float | None:
        if analysis.alignment is None:
            return None
        return analysis.alignment.aol(query) if average == "AoL" else analysis.alignment.aoh(query)

    return analysis_measure(f"{query} {average}", value)


def head_diversity(site: str, temperature: str) -> Measure:
    """Return the Jensen-Shannon divergence between heads, mean over the layers of a site ([RL] Table 6)."""
    return analysis_measure(
        site,
        lambda analysis: mean_over_layers(layer.head_diversity.get(temperature) for layer in analysis.attentions(site)),
    )


def same_names(*models: str) -> dict[str, str]:
    """Return rows whose label in papers.json is the name of the model."""
    return {model: model for model in models}


FOUR_MODELS = same_names("softmax", "sparsemax", "entmax15", "rela_g")

TEMPERATURES = {f"rela_g tau={tau:.2f}": str(tau) for tau in (1.0, 0.5, 0.25, 0.1)}
"""Row of [RL] Table 6 -> temperature of the softmax that renormalizes ReLA's weights."""

NULL_ROWS_NOTE = "a row without weight counts as entropy 0, so a dead attention looks like a concentrated one"

SELF_ATTENTIONS: Rows = {
    "relu, no scale factor": "relu_alone",
    "relu, scale factor": "relu_unregularized",
    "relu, LayerNorm": TableRow("relu_layernorm"),
}
"""Rows of [RF] Table 2 after softmax, and that of [RF] section 4."""

ABLATIONS: Rows = {
    "reluformer": "reluformer",
    "- scale factor": "relu_unscaled",
    "- regularization loss": "relu_unregularized",
    "- scale factor - regularization loss": TableRow("relu_alone"),
}
"""Rows of [RF] Table 5, and one without both parts."""

FAIRSEQ_INIT = RowVariant(
    "fairseq's initialization", "fairseq-init", ("--relu-initial-score", "0", "--relu-initial-gain", "1")
)
"""The projections of q and k start as fairseq initializes them."""

FAIRSEQ_INIT_NOTE = (
    "the paper does not print the initialization, so its numbers stand beside our runs from the positive start "
    f"(docs/design.md) and from fairseq's ({' '.join(FAIRSEQ_INIT.flags)})"
)

TABLES = (
    ScoreTable(
        "RF",
        "table2",
        rows={"softmax": "softmax", **SELF_ATTENTIONS, **FAIRSEQ_INIT.apply(SELF_ATTENTIONS)},
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
        rows={"softmax": "softmax", "relu": "relu_unregularized"},
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
        rows={
            "transformer": "softmax",
            **same_names("sparsemax", "entmax15"),
            "rela": "rela_g",
            "reluformer": "reluformer",
        },
        columns=columns_per_corpus(
            BLEU_TOKENIZED,
            {"IWSLT14 De-En BLEU": IWSLT, "WMT14 En-De BLEU": WMT},
            shown_in_small="IWSLT14 De-En BLEU",
        ),
        baseline="transformer",
        speed_benchmark="train_decode_speed.py",
    ),
    ScoreTable(
        "RF",
        "table5",
        rows={**ABLATIONS, **FAIRSEQ_INIT.apply(ABLATIONS, baseline="reluformer")},
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
        rows={"transformer": "softmax", **same_names("sparsemax", "reluformer")},
        columns={
            preset: tuple(Column(name, BLEU_TOKENIZED, limit, preset == "paper") for limit, name in by_limit.items())
            for preset, by_limit in DOCUMENTS.items()
        },
        baseline="transformer",
        notes=("d-BLEU of whole documents, tokenized; each column limits documents to its number of tokens",),
    ),
    ScoreTable(
        "RL",
        "table1",
        rows={
            **same_names("softmax", "sparsemax", "entmax15"),
            "relu alone": "rela_unnormalized",
            "relu + RMSNorm": "rela_rmsnorm",
            **same_names("rela_i", "rela_g"),
            "rela_g with LayerNorm": "rela_g_layernorm",
            "rela_g with GELU": "rela_g_gelu",
            "rela_g with LeakyReLU": "rela_g_leaky_relu",
            "rela_g encoder only": "rela_g_encoder",
            "rela_g decoder only": "rela_g_decoder",
            "rela_g cross only": "rela_g_cross",
        },
        columns=columns_on_one_corpus(WMT_RELA, {"sacreBLEU": BLEU_DETOKENIZED, "tokenized BLEU": BLEU_TOKENIZED}),
        baseline="softmax",
    ),
    ScoreTable(
        "RL",
        "table3",
        rows=FOUR_MODELS,
        columns=columns_per_corpus(
            BLEU_DETOKENIZED,
            {
                "WMT14 En-Fr": "wmt14_en_fr",
                "WMT18 En-Fi": "wmt18_en_fi",
                "WMT18 Zh-En": "wmt18_zh_en",
                "WMT16 Ro-En": "wmt16_ro_en",
            },
        ),
        baseline="softmax",
    ),
    ScoreTable(
        "RL",
        "table5",
        rows=FOUR_MODELS,
        columns={
            preset: tuple(
                Column(dataset, aer(query, average), f"{query} {average}", preset == "paper")
                for query in ("normal", "shifted")
                for average in ("AoL", "AoH")
            )
            for preset, dataset in ALIGNED.items()
        },
        needs_analysis=True,
        notes=(
            "AoL, AoH: alignment error rate of the heads' mean weights and of the best head, mean over layers, %",
            "the paper analyzes English-German models of three seeds (--seeds 1 2 3)",
        ),
    ),
    ScoreTable(
        "RL",
        "table6",
        rows={
            **same_names("softmax", "entmax15"),
            **dict.fromkeys(TEMPERATURES, "rela_g"),
            "rela_g, α/Σα": TableRow("rela_g"),
            "reluformer, α/Σα": TableRow("reluformer"),
        },
        columns={
            preset: tuple(
                Column(
                    dataset,
                    head_diversity(site, "normalized"),
                    site,
                    preset == "paper",
                    {label: head_diversity(site, temperature) for label, temperature in TEMPERATURES.items()},
                )
                for site in ("encoder", "decoder", "cross")
            )
            for preset, dataset in by_preset(WMT_RELA).items()
        },
        needs_analysis=True,
        notes=(
            "tau: weights as a softmax of α^τ, as in the paper; α/Σα: normalized weights; those of softmax and "
            "entmax15 sum to 1 as they are",
        ),
    ),
)
