"""A sweep over γ, λ₁ and λ₂ of ReLUFormer, which [RF] does not print: validation loss and BLEU by setting."""

from itertools import chain

from relumt.tables.context import TableContext, spread_note
from relumt.tables.experiments import IWSLT, Experiment, by_preset
from relumt.tables.measures import BLEU_TOKENIZED, VALIDATION_LOSS
from relumt.tables.rendering import RenderedTable
from relumt.tables.runs import require_comparable
from relumt.tables.table import Table

SETTINGS = (
    *((1.0, weight, weight) for weight in (0.0, 0.01, 0.1, 0.3)),
    *((gamma, 0.1, 0.1) for gamma in (0.5, 2.0)),
    (1.0, 0.1, 0.0),
    (1.0, 0.0, 0.1),
)
"""γ of [RF] Eq. 6, λ₁ and λ₂ of Eq. 7: one direction at a time from γ = 1, λ₁ = λ₂ = 0.1, and each λ alone."""


def sweep_experiment(preset: str, gamma: float, norm: float, entropy: float) -> Experiment:
    """Return the experiment with γ, λ₁ (weight of the norm term) and λ₂ (weight of the entropy term)."""
    flags = {"--relu-gamma": gamma, "--attention-norm-weight": norm, "--attention-entropy-weight": entropy}
    variant = f"gamma-{gamma:g}-norm-{norm:g}-entropy-{entropy:g}"
    command_line = tuple(str(token) for flag in flags.items() for token in flag)
    return Experiment(by_preset(IWSLT)[preset], "reluformer", variant, command_line)


class Sweep(Table):
    """One row per setting. Choose by the validation loss, not by the BLEU of the test set."""

    @property
    def title(self) -> str:
        """What it shows; the paper has no such table."""
        return "γ, λ₁ and λ₂ of ReLUFormer, [RF] Eq. 6 and 7"

    def experiments(self, preset: str) -> list[Experiment]:
        """See Table."""
        return [sweep_experiment(preset, *setting) for setting in SETTINGS]

    def render(self, context: TableContext) -> list[RenderedTable]:
        """See Table."""
        found = context.find_runs(self.experiments(context.preset))
        all_runs = list(chain(*found.values()))
        require_comparable(all_runs, BLEU_TOKENIZED.metric)
        rows = [
            [
                *(f"{value:g}" for value in setting),
                *(measure.format_mean(runs) for measure in (VALIDATION_LOSS, BLEU_TOKENIZED)),
            ]
            for setting, runs in zip(SETTINGS, found.values(), strict=True)
        ]
        notes = [
            context.preset_note,
            *context.notes(by_preset(IWSLT)[context.preset], all_runs, [BLEU_TOKENIZED]),
            *spread_note(found),
        ]
        header = ["γ", "λ₁", "λ₂", VALIDATION_LOSS.label, f"{BLEU_TOKENIZED.label}, test"]
        return [RenderedTable(context.caption(self.title), header, rows, notes)]


TABLES = (Sweep("RF", "sweep"),)
