"""Sweeps over settings that [RF] does not print: validation loss, BLEU and other measures by setting."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import chain

from relumt.tables.context import P_VALUE_NOTES, TableContext, spread_note
from relumt.tables.experiments import IWSLT, Experiment, by_preset
from relumt.tables.ffn_table import ffn_experiment, variance_ratio
from relumt.tables.measures import BLEU_TOKENIZED, VALIDATION_LOSS, Measure
from relumt.tables.rendering import RenderedTable
from relumt.tables.runs import require_comparable
from relumt.tables.score_table import format_p_values
from relumt.tables.table import Table

Setting = tuple[float, ...]
"""A value of each parameter."""


@dataclass(frozen=True)
class Sweep(Table):
    """One row per setting. Choose by the validation loss, not by the BLEU of the test set.

    Attributes:
        parameters: their symbols.
        settings: one row each.
        baseline: the setting that the others are tested against.
        experiment: returns the experiment of a preset and a setting.
        measures: further columns.
        notes: explanations below the table.
    """

    parameters: tuple[str, ...]
    settings: tuple[Setting, ...]
    baseline: Setting
    experiment: Callable[[str, Setting], Experiment]
    measures: tuple[Measure, ...] = ()
    notes: tuple[str, ...] = ()

    def experiments(self, preset: str) -> list[Experiment]:
        """See Table."""
        return [self.experiment(preset, setting) for setting in self.settings]

    def render(self, context: TableContext) -> list[RenderedTable]:
        """See Table."""
        found = context.find_runs(self.experiments(context.preset))
        all_runs = list(chain(*found.values()))
        require_comparable(all_runs, BLEU_TOKENIZED.metric)
        if self.measures:
            context.warn_not_analyzed(found)
        by_setting = dict(zip(self.settings, found.values(), strict=True))
        measures = (VALIDATION_LOSS, BLEU_TOKENIZED, *self.measures)
        rows = [
            [
                *(f"{value:g}" for value in setting),
                *(measure.format_mean(runs) for measure in measures),
                ""
                if setting == self.baseline
                else format_p_values(runs, by_setting[self.baseline], BLEU_TOKENIZED.metric, context.test),
            ]
            for setting, runs in by_setting.items()
        ]
        notes = [
            context.preset_note,
            *self.notes,
            *context.notes(by_preset(IWSLT)[context.preset], all_runs, measures),
            P_VALUE_NOTES[context.test],
            *spread_note(found),
        ]
        baseline = ", ".join(
            f"{symbol} = {value:g}" for symbol, value in zip(self.parameters, self.baseline, strict=True)
        )
        header = [*self.parameters, *(measure.label for measure in measures), f"p against {baseline}"]
        return [RenderedTable(context.caption(self.title), header, rows, notes)]


REGULARIZERS = (
    *((1.0, weight, weight) for weight in (0.0, 0.01, 0.1, 0.3)),
    *((gamma, 0.1, 0.1) for gamma in (0.5, 2.0)),
    (1.0, 0.1, 0.0),
    (1.0, 0.0, 0.1),
)
"""γ of [RF] Eq. 6, λ₁ and λ₂ of Eq. 7: one direction at a time from γ = 1, λ₁ = λ₂ = 0.1, and each λ alone."""


def regularizer_experiment(preset: str, setting: Setting) -> Experiment:
    """Return the experiment with γ, λ₁ (weight of the norm term) and λ₂ (weight of the entropy term)."""
    gamma, norm, entropy = setting
    flags = {"--relu-gamma": gamma, "--attention-norm-weight": norm, "--attention-entropy-weight": entropy}
    variant = f"gamma-{gamma:g}-norm-{norm:g}-entropy-{entropy:g}"
    command_line = tuple(str(token) for flag in flags.items() for token in flag)
    return Experiment(by_preset(IWSLT)[preset], "reluformer", variant, command_line)


TEMPERATURE_SLOTS = {"paper": 1024, "small": 512, "smoke": 32}
"""Preset -> memory slots of the feed-forward layers whose temperature varies; runs of reluformer_table1 have τ = 1."""


def temperature_experiment(preset: str, setting: Setting) -> Experiment:
    """Return the experiment with softmax(x/τ) in the feed-forward layers."""
    (temperature,) = setting
    base = ffn_experiment(preset, "ffn_softmax", TEMPERATURE_SLOTS[preset])
    if temperature == 1:
        return base
    flags = (*base.flags, "--memory-temperature", f"{temperature:g}")
    return replace(base, variant=f"{base.variant}-temperature-{temperature:g}", flags=flags)


TABLES = (
    Sweep(
        "RF",
        "sweep",
        caption="γ, λ₁ and λ₂ of ReLUFormer, [RF] Eq. 6 and 7",
        parameters=("γ", "λ₁", "λ₂"),
        settings=REGULARIZERS,
        baseline=(1.0, 0.1, 0.1),
        experiment=regularizer_experiment,
    ),
    Sweep(
        "RF",
        "temperature",
        caption="τ of softmax in feed-forward layers, [RF] section 3.4",
        parameters=("τ",),
        settings=((0.25,), (0.5,), (1.0,), (2.0,), (4.0,)),
        baseline=(1.0,),
        experiment=temperature_experiment,
        measures=(variance_ratio("variance ratio"),),
        notes=("the paper: the temperature has little effect; its values and scores are not in papers.json",),
    ),
)
