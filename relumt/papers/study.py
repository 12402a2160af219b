"""ReLU or softmax? A search by validation loss, and the comparison of its best settings on test sets.

The held-out rule: every choice is made on validation sets, and a test set is translated once per final setting.
`study_search` therefore trains without translating. Its results are recorded by hand: in BEST_MODELS, and in rows that
have flags, `TableRow("softpick", variant="lr-2e-3", flags=("--lr", "2e-3"))`. No row has any: of the settings that were
tried (docs/results/relu_or_softmax.md), none is better than the dataset's own for certain.

The search is not the full product of learning rates and attention dropout. It starts from the settings of the dataset
and changes one of them at a time, so every model has the same four runs. What it cannot find is a model that needs
another learning rate with attention dropout than without. Preset small searches on a stand-in for the dataset of the
study, of half the width and a third of the epochs, whose runs take minutes; so a learning rate is compared with others
before it is recorded, not assumed to be the best on the larger one.
"""

from collections.abc import Mapping
from statistics import mean

from relumt.papers.context import Runs, TableContext
from relumt.papers.experiments import IWSLT, SMOKE, Experiment, by_preset
from relumt.papers.measures import BLEU_TOKENIZED, BREVITY_PENALTY, LENGTH_PENALTY, VALIDATION_BLEU, VALIDATION_LOSS
from relumt.papers.score_table import Column, ScoreTable, TableRow, make_rows
from relumt.papers.table import Body, RunTable, Table, spread_note

TrainFlags = tuple[str, ...]
"""Flags of fairseq-train beyond those of configs/, as on a command line."""

MODELS = tuple(
    "softmax softmax_gated reluformer reluformer_scheduled reluformer_hinge relu2former relu2former_gated "
    "rela_i rela_g sigmoid softpick entmax15".split()
)
"""Rows of the study: names in configs/models.toml."""

CANDIDATES = ("reluformer_gated", "sigmoid_gated", "entmax_learned", "ssmax")
"""Models that are only searched; one that does well can move to MODELS."""

BEST_MODELS = ("relu2former", "relu2former_gated", "reluformer")
"""The three models that are compared with softmax on IWSLT14, too: of those without softmax the ones with the highest
validation BLEU in the study on Multi30k (docs/results/relu_or_softmax.md), because validation loss ranks models
differently. Each has three seeds there."""

GAP_MODELS = ("softmax", "softmax_qk_norm", "relu_l1_p8_qk_norm", "relu_l1_p4_qk_norm")
"""docs/gap-plan.md: softmax, also with what is not specific to ReLU, and the two models that its pruning left."""

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

DATASET_NOTES = {
    "iwslt14_30pct_study": "30% of the training data of IWSLT14, so the scores cannot be compared with published ones"
}
"""Dataset -> note below its tables."""

SEARCH_FLAGS: Mapping[str, tuple[TrainFlags, ...]] = {
    "paper": ((), ("--lr", "3.5e-4"), ("--lr", "1.4e-3"), ("--attention-dropout", "0")),
    "small": ((), ("--lr", "1e-3"), ("--lr", "4e-3"), ("--attention-dropout", "0.1")),
    "smoke": ((), ("--attention-dropout", "0.1")),
}
"""Preset -> settings to search; the first is the dataset's own, `--lr 7e-4 --attention-dropout 0.1` for preset
paper, `--lr 2e-3` without attention dropout for preset small. Both have half and twice that learning rate."""

OWN_SETTINGS = "the dataset's settings"


class LossSearch(RunTable):
    """Validation loss by model and setting. No test set is translated."""

    shown_measures = (VALIDATION_LOSS,)

    def experiments(self, preset: str) -> list[Experiment]:
        """See Table; all models with the first setting come first, whose runs are those of other tables."""
        variants = {flags: "-".join(token.removeprefix("--") for token in flags) for flags in SEARCH_FLAGS[preset]}
        return [
            Experiment(by_preset(IWSLT)[preset], model, variant, flags, needs_test=False)
            for flags, variant in variants.items()
            for model in MODELS + CANDIDATES
        ]

    def body(self, found: Runs, context: TableContext) -> Body:
        """See RunTable."""
        header = ["", *(" ".join(flags) or OWN_SETTINGS for flags in SEARCH_FLAGS[context.preset])]
        rows = []
        for model in MODELS + CANDIDATES:
            settings = {one: runs for one, runs in found.items() if one.model == model}
            lowest = find_lowest(settings)
            losses = {one: VALIDATION_LOSS.format_mean(runs) for one, runs in settings.items()}
            rows.append([model, *(f"{loss} *" if one == lowest else loss for one, loss in losses.items())])
        return header, rows, spread_note(found)


def find_lowest(found: Runs) -> Experiment | None:
    """Return the experiment with the lowest mean validation loss over the seeds that all experiments have.

    None without such seeds, because losses differ by seed. Experiments without runs, or that diverged, do not count.
    """
    losses: dict[Experiment, dict[int, float]] = {}
    for one, runs in found.items():
        if values := VALIDATION_LOSS.values(runs):
            losses[one] = dict(zip((run.seed for run in runs), values, strict=True))
    common = set.intersection(*map(set, losses.values())) if losses else None
    return min(losses, key=lambda one: mean(losses[one][seed] for seed in common)) if common else None


class StudyTable(ScoreTable):
    """Models with the settings that were chosen for them, compared with softmax over seeds."""

    def introduction(self, context: TableContext) -> list[str]:
        """See RunTable; the first notes say which settings were chosen, and what is special about a dataset."""
        experiments = dict.fromkeys(self.experiments(context.preset))
        chosen = [f"{one.model} {' '.join(one.flags)}" for one in experiments if one.flags]
        settings = "; ".join(chosen) or "none, all models have the dataset's"
        datasets = {one.dataset for one in experiments}
        special = [note for dataset, note in DATASET_NOTES.items() if dataset in datasets]
        return [f"settings chosen by validation loss: {settings}", *special, *super().introduction(context)]


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
) -> StudyTable:
    """Return a table of models on the dataset of each preset, compared with `baseline` over seeds."""
    return StudyTable(
        "", name, caption=caption, rows=rows, columns=study_columns(datasets), baseline=baseline, notes=notes
    )


TABLES: tuple[Table, ...] = (
    LossSearch(
        "",
        "study_search",
        caption="ReLU or softmax: validation loss by model and setting",
        notes=(
            "best validation loss, without the regularizer; *: the lowest of the model over the seeds of all settings",
        ),
    ),
    study_table("study", "ReLU or softmax: mechanisms", make_rows(*MODELS), MULTI30K_DATASETS),
    study_table(
        "study_iwslt14",
        "ReLU or softmax: the best models of the study on IWSLT14",
        make_rows("softmax", *BEST_MODELS),
        IWSLT_DATASETS,
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
    ),
    study_table(
        "study_sites",
        "ReLU or softmax: by attention site",
        make_rows(SITE_MODELS),
        MULTI30K_DATASETS,
        notes=("ReLUFormer has the penalty on entropy, too; the rows with ReLU have only that on row sums",),
    ),
)
