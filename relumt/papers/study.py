"""ReLU or softmax? Models with the settings that are best for each, compared on test sets.

The held-out rule: every choice is made on validation sets, and a test set is translated once per final setting. All
models have the settings of the dataset: of those that were tried (docs/results/relu_or_softmax.md), none is better for
certain.
"""

from collections.abc import Mapping

from relumt.papers.experiments import IWSLT, SMOKE
from relumt.papers.measures import BLEU_TOKENIZED, BREVITY_PENALTY, LENGTH_PENALTY, VALIDATION_BLEU, VALIDATION_LOSS
from relumt.papers.score_table import Column, ScoreTable, TableRow, make_rows
from relumt.papers.table import Table

MODELS = tuple(
    "softmax softmax_gated reluformer reluformer_scheduled reluformer_hinge relu2former relu2former_gated "
    "rela_i rela_g sigmoid softpick entmax15".split()
)
"""Rows of the study: names in configs/models.toml."""

BEST_MODELS = ("relu2former", "relu2former_gated", "reluformer")
"""The three models that are compared with softmax on IWSLT14, too: of those without softmax the ones with the highest
validation BLEU in the study on Multi30k (docs/results/relu_or_softmax.md), because validation loss ranks models
differently. Each has three seeds there."""

GAP_MODELS = ("softmax", "softmax_qk_norm", "relu_l1_p8_qk_norm", "relu_l1_p8_qk_log_n", "softmax_to_relu_l1")
"""docs/gap-plan.md: softmax, also with what is not specific to ReLU, and the models that its pruning left."""

SITE_MODELS = {
    "softmax": "softmax",
    "ReLU in the encoder": "relu_encoder",
    "ReLU in the decoder's self-attention": "relu_decoder",
    "ReLU in the cross-attention": "relu_cross",
    "ReLU in decoder and cross-attention": "relu_softmax_encoder",
    "ReLU everywhere": "relu_all_sites",
    "ReLUFormer": "reluformer",
}
"""Row -> model."""

MULTI30K_DATASETS = {"paper": IWSLT, "small": "multi30k_de_en_study", "smoke": SMOKE}
IWSLT_DATASETS = {"paper": IWSLT, "small": "iwslt14_30pct_study", "smoke": SMOKE}

IWSLT_NOTE = "preset small trains on 30% of IWSLT14, so its scores cannot be compared with published ones"


def study_columns(datasets: Mapping[str, str]) -> list[Column]:
    """Return the columns on the dataset of each preset."""
    compared = [Column(datasets, measure, compared_over_seeds=True) for measure in (VALIDATION_LOSS, VALIDATION_BLEU)]
    return [*compared, *(Column(datasets, measure) for measure in (BLEU_TOKENIZED, BREVITY_PENALTY, LENGTH_PENALTY))]


def study_table(
    name: str,
    caption: str,
    rows: dict[str, TableRow],
    datasets: Mapping[str, str],
    baseline: str = "softmax",
    notes: tuple[str, ...] = (),
) -> ScoreTable:
    """Return a table of models on the dataset of each preset, compared with `baseline` over seeds."""
    return ScoreTable(
        "", name, caption=caption, rows=rows, columns=study_columns(datasets), baseline=baseline, notes=notes
    )


TABLES: tuple[Table, ...] = (
    study_table("study", "ReLU or softmax: mechanisms", make_rows(*MODELS), MULTI30K_DATASETS),
    study_table(
        "study_iwslt14",
        "ReLU or softmax: the best models of the study on IWSLT14",
        make_rows("softmax", *BEST_MODELS),
        IWSLT_DATASETS,
        notes=(IWSLT_NOTE,),
    ),
    study_table(
        "gap",
        "Attention without softmax and without loss",
        make_rows(*GAP_MODELS),
        MULTI30K_DATASETS,
        baseline="softmax_qk_norm",
    ),
    study_table(
        "gap_iwslt14",
        "Attention without softmax and without loss: IWSLT14",
        make_rows(*GAP_MODELS),
        IWSLT_DATASETS,
        baseline="softmax_qk_norm",
        notes=(IWSLT_NOTE,),
    ),
    study_table(
        "study_sites",
        "ReLU or softmax: by attention site",
        make_rows(SITE_MODELS),
        MULTI30K_DATASETS,
        notes=("ReLUFormer has the penalty on entropy, too; the rows with ReLU have only that on row sums",),
    ),
)
