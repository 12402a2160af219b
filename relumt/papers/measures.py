"""Measures that tables show, the columns of the frame of runs: scores, losses, and averages of an analysis."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import mean

from relumt.analysis.record import CheckpointAnalysis, mean_over_heads
from relumt.papers.comparability import METRIC_TITLES
from relumt.papers.rendering import DIVERGED, format_average
from relumt.papers.runs import Run, any_diverged


@dataclass(frozen=True)
class Measure:
    """A number that a run has.

    Attributes:
        label: title of the column.
        value: returns the number, or None if the run has none.
        format_spec: how it is printed.
        metric: its name in run.json if it is a score, for significance tests; else "".
        subset: the data that it is measured on, "test" or "validation".
        is_constant: whether it is the same for each seed.
    """

    label: str
    value: Callable[[Run], float | None]
    format_spec: str = ".2f"
    metric: str = ""
    subset: str = "test"
    is_constant: bool = False

    def values(self, runs: Sequence[Run]) -> list[float]:
        """Return the value of each run; none at all if a run has none or diverged. A constant is returned once."""
        if self.is_constant:  # a seed may tell it although another one diverged
            return [value for run in runs if (value := self.value(run)) is not None][:1]
        if any_diverged(runs):
            return []
        values = [value for run in runs if (value := self.value(run)) is not None]
        return values if len(values) == len(runs) else []

    def format_mean(self, runs: Sequence[Run]) -> str:
        """Return the mean over seeds, with the standard deviation; a dash if a run diverged, "" without values."""
        if any_diverged(runs) and not self.is_constant:
            return DIVERGED
        return format_average(self.values(runs), self.format_spec)


def score(metric: str) -> Measure:
    """Return the measure of a score in run.json."""
    return Measure(METRIC_TITLES[metric], lambda run: run.record.test_score(metric).score, metric=metric)


def external_scores(runs: Iterable[Run]) -> list[Measure]:
    """Return the measures of all scores by other programs that any of the runs has, by name.

    Versions of a metric cannot be compared: if there are several, each is a measure of its own.
    """

    def external_score(metric: str) -> Measure:
        def value(run: Run) -> float | None:
            found = run.record.external_score(metric)
            return found.score if found else None

        return Measure(metric, value, ".4f", metric)

    signatures: dict[str, set[str]] = {}
    for run in runs:
        for name, found in run.record.external_scores.items():
            signatures.setdefault(name, set()).add(found.signature)
    return [
        external_score(name if len(versions) == 1 else f"{name} ({version})")
        for name, versions in sorted(signatures.items())
        for version in sorted(versions)
    ]


BLEU_TOKENIZED, BLEU_DETOKENIZED, CHRF = map(score, METRIC_TITLES)

BREVITY = re.compile(r"\bBP = (\d\.\d+)")
"""The brevity penalty in sacreBLEU's description of a BLEU."""


def brevity_penalty(run: Run) -> float | None:
    """Return the factor by which short translations lower the tokenized BLEU; None if run.json does not tell."""
    match = BREVITY.search(run.record.test_score("bleu_tokenized").detail)
    return float(match[1]) if match else None


def validation_bleu(run: Run) -> float | None:
    """Return the tokenized BLEU of the validation set with the length penalty that was chosen by it; None without."""
    choice = run.record.test_evaluation.setup.length_penalty
    return choice.bleu[choice.chosen] if choice else None


BREVITY_PENALTY = Measure("brevity penalty", brevity_penalty, ".3f")

LENGTH_PENALTY = Measure(
    "length penalty", lambda run: float(run.record.test_evaluation.setup.flags.get("--lenpen", "1")), ".1f"
)
"""The exponent of the length in beam search, whether chosen or given; fairseq's default is 1."""

VALIDATION_BLEU = Measure("validation BLEU", validation_bleu, subset="validation")

VALIDATION_LOSS = Measure(
    "best validation loss",
    lambda run: run.record.training.best_valid_loss if run.record.training else None,
    ".3f",
    subset="validation",
)
"""The lowest validation loss, which does not include the regularizer."""

PARAMETERS = Measure(
    "parameters", lambda run: run.record.training.parameters if run.record.training else None, ",", is_constant=True
)

TOKENS_PER_SECOND = Measure(
    "tokens/s", lambda run: run.record.training.tokens_per_second if run.record.training else None, ",.0f"
)


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


def attention_mean(label: str, attribute: str) -> Measure:
    """Return the mean over heads and layers of an attribute of AttentionMetrics."""
    return analysis_measure(
        label, lambda run: mean_over_layers(mean_over_heads(getattr(layer, attribute)) for layer in run.attentions())
    )


ENTROPY = attention_mean("entropy", "entropy")
"""H(s) of [RF] Tables 3 and 5 in nats; a null row counts as 0."""

NULL_RATE = attention_mean("null rows", "null_rate")
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
