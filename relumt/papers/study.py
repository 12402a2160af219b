"""ReLU or softmax? A search by validation loss, and the comparison of its best settings on test sets.

The held-out rule: every choice is made on validation sets, and a test set is translated once per final setting.
`study_search` therefore trains without translating. Its results are recorded by hand in CHOSEN_FLAGS and BEST_MODELS,
from which the tables of test sets take their settings.

The search is not the full product of learning rates and attention dropout. It starts from the settings of the dataset
and changes one of them at a time, so every model has the same four runs. What it cannot find is a model that needs
another learning rate with attention dropout than without. Preset small searches on a stand-in for the dataset of the
study, of half the width and a third of the epochs, whose runs take minutes; so a learning rate is compared with others
before it is recorded, not assumed to be the best on the larger one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import mean

from relumt.papers.context import Runs, TableContext, spread_note
from relumt.papers.experiments import IWSLT, SMOKE, Experiment, by_preset
from relumt.papers.measures import BLEU_TOKENIZED, BREVITY_PENALTY, LENGTH_PENALTY, VALIDATION_BLEU, VALIDATION_LOSS
from relumt.papers.rendering import RenderedTable
from relumt.papers.runs import require_comparable
from relumt.papers.score_table import Column, ScoreTable, TableRow
from relumt.papers.table import Table

TrainFlags = tuple[str, ...]
"""Flags of fairseq-train beyond those of configs/, as on a command line."""

MODELS = (
    "softmax",
    "softmax_gated",
    "reluformer",
    "reluformer_scheduled",
    "reluformer_hinge",
    "relu2former",
    "relu2former_gated",
    "rela_i",
    "rela_g",
    "sigmoid",
    "softpick",
    "entmax15",
)
"""Rows of the study: names in configs/models.toml."""

CANDIDATES = ("reluformer_gated", "sigmoid_gated", "entmax_learned", "ssmax")
"""Models that are only searched; one that does well can move to MODELS."""

BEST_MODELS = ("relu2former", "relu2former_gated", "reluformer")
"""The three models that are compared with softmax on IWSLT14, too: of those without softmax the ones with the highest
validation BLEU in the study on Multi30k (docs/results/relu_or_softmax.md), because validation loss ranks models
differently. Each has three seeds there."""

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

CHOSEN_FLAGS: Mapping[str, Mapping[str, TrainFlags]] = {}
"""Dataset -> model -> flags that were chosen for it by validation loss, for example ("--lr", "2e-3"). A model that is
not listed is trained with the settings of the dataset. What was tried is in docs/results/relu_or_softmax.md."""

SEARCH_FLAGS: Mapping[str, tuple[TrainFlags, ...]] = {
    "paper": ((), ("--lr", "3.5e-4"), ("--lr", "1.4e-3"), ("--attention-dropout", "0")),
    "small": ((), ("--lr", "1e-3"), ("--lr", "4e-3"), ("--attention-dropout", "0.1")),
    "smoke": ((), ("--attention-dropout", "0.1")),
}
"""Preset -> settings to search; the first is the dataset's own, `--lr 7e-4 --attention-dropout 0.1` for preset
paper, `--lr 2e-3` without attention dropout for preset small. Both have half and twice that learning rate."""

OWN_SETTINGS = "the dataset's settings"


def study_experiment(dataset: str, model: str, flags: TrainFlags, needs_test: bool) -> Experiment:
    """Return an experiment whose variant is named after its flags; without any it shares its runs with other tables."""
    variant = "-".join(token.removeprefix("--") for token in flags)
    return Experiment(dataset, model, variant, flags, needs_test=needs_test)


@dataclass(frozen=True)
class LossSearch(Table):
    """Validation loss by model and setting. No test set is translated."""

    models: tuple[str, ...]
    datasets: Mapping[str, str]
    settings: Mapping[str, tuple[TrainFlags, ...]]

    def experiments(self, preset: str) -> list[Experiment]:
        """See Table; all models with the first setting come first."""
        return [
            study_experiment(self.datasets[preset], model, flags, needs_test=False)
            for flags in self.settings[preset]
            for model in self.models
        ]

    def render(self, context: TableContext) -> list[RenderedTable]:
        """See Table."""
        found = context.find_runs(self.experiments(context.preset))
        all_runs = list(chain(*found.values()))
        require_comparable(all_runs, BLEU_TOKENIZED.metric, self.varied_flags(context.preset))
        by_model = {model: {one: runs for one, runs in found.items() if one.model == model} for model in self.models}
        header = ["", *(" ".join(flags) or OWN_SETTINGS for flags in self.settings[context.preset])]
        notes = [
            context.preset_note,
            "best validation loss, without the regularizer; *: the lowest of the model over the seeds of all settings",
            *context.notes(self.datasets[context.preset], all_runs, [VALIDATION_LOSS]),
            *spread_note(found),
        ]
        rows = [[model, *mark_lowest(runs)] for model, runs in by_model.items()]
        return [RenderedTable(context.caption(self.title), header, rows, notes)]


def mark_lowest(found: Runs) -> list[str]:
    """Return the mean validation loss of each experiment, with an asterisk after the lowest over common seeds."""
    lowest = find_lowest(found)
    return [VALIDATION_LOSS.format_mean(runs) + (" *" if one == lowest else "") for one, runs in found.items()]


def find_lowest(found: Runs) -> Experiment | None:
    """Return the experiment with the lowest mean validation loss over the seeds that all experiments have.

    None without such seeds, because losses differ by seed. Experiments without runs, or that diverged, do not count.
    """
    measured = {one: runs for one, runs in found.items() if VALIDATION_LOSS.values(runs)}
    seeds = [{run.seed for run in runs} for runs in measured.values()]
    common = set.intersection(*seeds) if seeds else set()
    if not common:
        return None

    def mean_loss(experiment: Experiment) -> float:
        return mean(VALIDATION_LOSS.values([run for run in measured[experiment] if run.seed in common]))

    return min(measured, key=mean_loss)


@dataclass(frozen=True)
class StudyTable(ScoreTable):
    """Models with the settings that were chosen for them, compared with softmax over seeds."""

    def experiment(self, row: TableRow, column: Column) -> Experiment:
        """See ScoreTable."""
        flags = CHOSEN_FLAGS.get(column.dataset, {}).get(row.model, ())
        return study_experiment(column.dataset, row.model, flags, needs_test=True)

    def notes_below(self, columns: Sequence[Column], found: Runs, context: TableContext) -> list[str]:
        """See ScoreTable; the first notes say which settings were chosen, and what is special about a dataset."""
        chosen = [f"{one.model} {' '.join(one.flags)}" for one in found if one.flags]
        settings = "; ".join(chosen) or "none, all models have the dataset's"
        notes = [f"settings chosen by validation loss: {settings}"]
        notes += [note for dataset, note in DATASET_NOTES.items() if dataset in {column.dataset for column in columns}]
        return [*notes, *super().notes_below(columns, found, context)]


def study_columns(datasets: Mapping[str, str]) -> dict[str, tuple[Column, ...]]:
    """Return preset -> columns."""
    return {
        preset: (
            Column(dataset, VALIDATION_LOSS, compared_over_seeds=True),
            Column(dataset, VALIDATION_BLEU, compared_over_seeds=True),
            Column(dataset, BLEU_TOKENIZED),
            Column(dataset, BREVITY_PENALTY),
            Column(dataset, LENGTH_PENALTY),
        )
        for preset, dataset in datasets.items()
    }


def model_rows(*models: str) -> dict[str, TableRow]:
    """Return rows whose labels are the names of the models."""
    return {model: TableRow(model) for model in models}


TABLES: tuple[Table, ...] = (
    LossSearch(
        "",
        "study_search",
        caption="ReLU or softmax: validation loss by model and setting",
        models=MODELS + CANDIDATES,
        datasets=by_preset(IWSLT),
        settings=SEARCH_FLAGS,
    ),
    StudyTable(
        "",
        "study",
        caption="ReLU or softmax: mechanisms",
        rows=model_rows(*MODELS),
        columns=study_columns(MULTI30K_DATASETS),
        baseline="softmax",
    ),
    StudyTable(
        "",
        "study_iwslt14",
        caption="ReLU or softmax: the best models of the study on IWSLT14",
        rows=model_rows("softmax", *BEST_MODELS),
        columns=study_columns(IWSLT_DATASETS),
        baseline="softmax",
    ),
    StudyTable(
        "",
        "study_sites",
        caption="ReLU or softmax: by attention site",
        rows={label: TableRow(model) for label, model in SITE_MODELS.items()},
        columns=study_columns(MULTI30K_DATASETS),
        baseline="softmax",
        notes=("ReLUFormer has the penalty on entropy, too; the rows with ReLU have only that on row sums",),
    ),
)
