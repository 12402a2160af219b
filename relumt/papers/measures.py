"""Measures that tables show: scores of the test set, and averages of what `relumt analyze` measured."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import mean

from relumt.analysis.record import CheckpointAnalysis, mean_over_heads
from relumt.papers.comparability import METRIC_TITLES, require_equal
from relumt.papers.rendering import format_average
from relumt.papers.runs import MIN_BLEU, Run, any_diverged
from relumt.runs.record import RUN_RECORD

DIVERGED = "-"
"""Cell of a run that diverged, as in the papers."""

DIVERGED_NOTE = (
    f"{DIVERGED}: a seed diverged (no finite gradient was left), or hardly learned anything (BLEU is below "
    f"{MIN_BLEU:g})"
)

ENVIRONMENTS_NOTE = (
    f"trained or evaluated in several environments, or in part with other settings (`accepted_changes` in {RUN_RECORD})"
)

SPREAD_NOTE = "±: standard deviation over seeds"


@dataclass(frozen=True)
class Measure:
    """A number that a run has.

    Attributes:
        label: title of the column.
        value: returns the number, or None if the run has none.
        format_spec: how it is printed.
        metric: its name in run.json if it is a score, for significance tests; else "".
        subset: the data that it is measured on, "test" or "validation".
        why_missing: why analyzed runs may have no value.
    """

    label: str
    value: Callable[[Run], float | None]
    format_spec: str = ".2f"
    metric: str = ""
    subset: str = "test"
    why_missing: str = "whose weights or test set do not allow this measure"

    def values(self, runs: Sequence[Run]) -> list[float]:
        """Return the value of each run; none at all if a run has none or diverged."""
        if any_diverged(runs):
            return []
        values = [value for run in runs if (value := self.value(run)) is not None]
        return values if len(values) == len(runs) else []

    def format_mean(self, runs: Sequence[Run]) -> str:
        """Return the mean over seeds, with the standard deviation; a dash if a run diverged, "" without values."""
        if any_diverged(runs):
            return DIVERGED
        values = self.values(runs)
        return format_average(values, self.format_spec) if values else ""


def score(metric: str) -> Measure:
    """Return the measure of a score in run.json."""
    return Measure(METRIC_TITLES[metric], lambda run: run.record.test_score(metric).score, metric=metric)


def external_score(metric: str) -> Measure:
    """Return the measure of a score that another program computed."""

    def value(run: Run) -> float | None:
        found = run.record.external_scores.get(metric)
        return found.score if found else None

    return Measure(metric, value, ".4f", metric, why_missing="which relumt score has not scored by this metric")


def external_scores(runs: Iterable[Run]) -> list[Measure]:
    """Return the measures of all scores by other programs that any of the runs has, by name."""
    return [external_score(metric) for metric in sorted({name for run in runs for name in run.record.external_scores})]


BLEU_TOKENIZED, BLEU_DETOKENIZED = score("bleu_tokenized"), score("bleu_detokenized")


BREVITY = re.compile(r"\bBP = (\d\.\d+)")
"""The brevity penalty in sacreBLEU's description of a BLEU."""


def brevity_penalty(run: Run) -> float | None:
    """Return the factor by which short translations lower the tokenized BLEU; None if run.json does not tell."""
    match = BREVITY.search(run.record.test_score("bleu_tokenized").detail)
    return float(match[1]) if match else None


BREVITY_PENALTY = Measure("brevity penalty", brevity_penalty, ".3f")


def length_penalty(run: Run) -> float | None:
    """Return the exponent of the length in beam search, whether chosen or given; fairseq's default is 1."""
    return float(run.record.test_evaluation.setup.flags.get("--lenpen", "1"))


LENGTH_PENALTY = Measure("length penalty", length_penalty, ".1f")


def validation_bleu(run: Run) -> float | None:
    """Return the tokenized BLEU of the validation set with the length penalty that was chosen by it; None without."""
    choice = run.record.test_evaluation.setup.length_penalty
    return choice.bleu[choice.chosen] if choice else None


VALIDATION_BLEU = Measure(
    "validation BLEU",
    validation_bleu,
    subset="validation",
    why_missing="whose length penalty was not chosen on the validation set",
)


def best_validation_loss(run: Run) -> float | None:
    """Return the lowest validation loss, which does not include the regularizer."""
    return run.record.training.best_valid_loss if run.record.training else None


VALIDATION_LOSS = Measure("best validation loss", best_validation_loss, ".3f", subset="validation")


def analysis_measure(
    label: str, value: Callable[[CheckpointAnalysis], float | None], format_spec: str = ".2f"
) -> Measure:
    """Return the measure of a run's analysis; a run without analysis has no value."""
    return Measure(label, lambda run: None if run.analysis is None else value(run.analysis), format_spec)


def mean_over_layers(values: Iterable[float | None]) -> float | None:
    """Return the mean; None if there are no values or one of them is None."""
    values = list(values)
    present = [value for value in values if value is not None]
    return mean(present) if present and len(present) == len(values) else None


def require_same_analyses(runs: Iterable[Run]) -> None:
    """Raise UserError if analyses of some runs have other units of attention or gold alignments than those of others.

    Analyses of earlier versions, which do not name their gold alignments, are not compared.
    """
    advice = "repeat one with relumt analyze RUN --out RUN --numbers-only --units subwords|words"
    analyses = {str(run.folder): run.analysis for run in runs if not run.diverged and run.analysis}
    require_equal(analyses, "the unit of attention", lambda analysis: analysis.unit, advice)
    aligned = {name: found for name, found in analyses.items() if found.alignment and found.alignments_sha256}
    require_equal(aligned, "the gold alignments", lambda analysis: analysis.alignments_sha256, advice)


def unit_note(runs: Iterable[Run]) -> list[str]:
    """Return the note that says that attention was measured on words; nothing for subwords, the default."""
    is_of_words = any(run.analysis.unit == "words" for run in runs if not run.diverged and run.analysis)
    return ["attention of words: weights of subwords are merged (relumt analyze --units words)"] if is_of_words else []


ENTROPY = analysis_measure(
    "entropy", lambda analysis: mean_over_layers(mean_over_heads(layer.entropy) for layer in analysis.attentions())
)
"""H(s) of [RF] Tables 3 and 5 in nats, mean over heads and layers; a null row counts as 0."""

NULL_RATE = analysis_measure(
    "null rows", lambda analysis: mean_over_layers(mean_over_heads(layer.null_rate) for layer in analysis.attentions())
)
"""Share of the rows that give no weight to any key."""


def entropy_of_non_null_rows(analysis: CheckpointAnalysis) -> float | None:
    """Return the mean entropy of rows that are not null, as if all heads had as many rows; None if all are null."""
    total_entropy = share_of_rows = 0.0
    for layer in analysis.attentions():
        if layer.entropy is None or layer.null_rate is None:
            return None
        for entropy, null_rate in zip(layer.entropy, layer.null_rate, strict=True):
            if entropy is not None and null_rate is not None:
                total_entropy += entropy
                share_of_rows += 1 - null_rate
    return total_entropy / share_of_rows if share_of_rows else None


ENTROPY_NON_NULL = analysis_measure("entropy of rows that are not null", entropy_of_non_null_rows)
