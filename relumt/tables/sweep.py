"""γ, λ₁ and λ₂ of ReLUFormer, which [RF] does not print: a sweep, best validation loss and BLEU by setting."""

from dataclasses import dataclass

from relumt.tables.context import SPREAD, TableContext
from relumt.tables.experiments import Experiment
from relumt.tables.measures import BLEU_TOKENISED, Measure
from relumt.tables.rendering import RenderedTable
from relumt.tables.runs import Run, find_runs, require_comparable
from relumt.tables.score_table import shown
from relumt.tables.scores import IWSLT, by_preset

GAMMAS = (0.5, 1.0, 2.0)
WEIGHTS = (0.0, 0.01, 0.1, 0.3)
DATASETS = by_preset(IWSLT)


@dataclass(frozen=True)
class Setting:
    """γ of Eq. 6; λ₁ and λ₂ of Eq. 7, [RF]."""

    gamma: float
    norm: float
    entropy: float

    def experiment(self, dataset: str) -> Experiment:
        """Its runs."""
        flags = {
            "--relu-gamma": self.gamma,
            "--attention-norm-weight": self.norm,
            "--attention-entropy-weight": self.entropy,
        }
        variant = f"gamma-{self.gamma:g}-norm-{self.norm:g}-entropy-{self.entropy:g}"
        return Experiment(dataset, "reluformer", variant, tuple(f"{part}" for item in flags.items() for part in item))


SETTINGS = tuple(
    dict.fromkeys(
        [
            *(Setting(1.0, weight, weight) for weight in WEIGHTS),
            *(Setting(gamma, 0.1, 0.1) for gamma in GAMMAS),
            Setting(1.0, 0.1, 0.0),
            Setting(1.0, 0.0, 0.1),
        ]
    )
)
"""One direction at a time from γ = 1, λ₁ = λ₂ = 0.1, and either of the regulariser's terms alone."""

VALIDATION = Measure("best validation loss", lambda run: best_loss(run), ".3f")


def best_loss(run: Run) -> float | None:
    """Of the validation set; the regulariser is not part of it."""
    return run.record.training.best_valid_loss if run.record.training else None


@dataclass(frozen=True)
class Sweep:
    """A row a setting; choose by the validation loss, not by the test set's BLEU."""

    title: str = "γ, λ₁ and λ₂ of ReLUFormer, [RF] Eq. 6 and 7"

    def experiments(self, preset: str) -> list[Experiment]:
        """Its runs."""
        return [setting.experiment(DATASETS[preset]) for setting in SETTINGS]

    def render(self, context: TableContext) -> list[RenderedTable]:
        """The sweep. Raises UserError where there are no runs, or they do not compare."""
        found = {setting.experiment(DATASETS[context.preset]): setting for setting in SETTINGS}
        runs = {cell: find_runs(cell, context.runs) for cell in found}
        context.require_any(runs)
        of_all = [run for of_cell in runs.values() for run in of_cell]
        require_comparable(of_all, BLEU_TOKENISED.score)
        rows = [
            [
                *(f"{x:g}" for x in (setting.gamma, setting.norm, setting.entropy)),
                shown(runs[cell], VALIDATION),
                shown(runs[cell], BLEU_TOKENISED),
            ]
            for cell, setting in found.items()
        ]
        notes = [context.of_preset]
        notes += context.notes_of(DATASETS[context.preset], of_all, [BLEU_TOKENISED])
        if any(len(of_cell) > 1 for of_cell in runs.values()):
            notes.append(SPREAD)
        head = ["γ", "λ₁", "λ₂", VALIDATION.label, f"{BLEU_TOKENISED.label}, test"]
        return [RenderedTable(context.caption(self.title), head, rows, notes)]


SWEEP = Sweep()
