"""What a cell of a table shows of a run: scores of the test set, and means over what `relumt analyze` measured."""

from collections.abc import Callable
from dataclasses import dataclass
from statistics import mean

from relumt.runs.analysis_record import AttentionMetrics, CheckpointAnalysis, mean_over_heads
from relumt.runs.comparability import SCORES
from relumt.tables.runs import Run


@dataclass(frozen=True)
class Measure:
    """A number of a run.

    Attributes:
        label: for heads of columns.
        of: the number; None where the run has none.
        form: how it is printed.
        score: its name in run.json if it is a score, whose differences can be tested; else "".
    """

    label: str
    of: Callable[[Run], float | None]
    form: str = ".2f"
    score: str = ""


def _score(name: str) -> Measure:
    return Measure(SCORES[name], lambda run: run.record.test_score(name).score, score=name)


BLEU_TOKENISED, BLEU_DETOKENISED = _score("bleu_tokenized"), _score("bleu_detokenized")


def of_analysis(label: str, of: Callable[[CheckpointAnalysis], float | None], form: str = ".2f") -> Measure:
    """A measure of a run's analysis; none where it was not analysed."""
    return Measure(label, lambda run: None if run.analysis is None else of(run.analysis), form)


def over_heads(measure: str, site: str = "") -> Callable[[CheckpointAnalysis], float | None]:
    """The mean over attentions, of a site or of all, of the mean over their heads that have one."""

    def of(analysis: CheckpointAnalysis) -> float | None:
        of_layers = [mean_of_heads(layer, measure) for layer in analysis.attentions(site)]
        return None if not of_layers or None in of_layers else mean(of_layers)

    return of


def mean_of_heads(layer: AttentionMetrics, measure: str) -> float | None:
    """The mean of a measure over the heads that have one; None where it does not apply to the attention."""
    return mean_over_heads(getattr(layer, measure))


def entropy(site: str = "") -> Measure:
    """H(s) of [RF] Tables 3 and 5, in nats, mean over heads and layers; a null row has 0."""
    return of_analysis("entropy" + (f", {site}" if site else ""), over_heads("entropy", site))


def of_rows_not_null(analysis: CheckpointAnalysis) -> float | None:
    """The mean entropy of the rows that are not null, of all heads and layers; None where every row is."""
    layers = analysis.attentions()
    if any(layer.entropy is None for layer in layers):
        return None
    of_heads = [
        (layer.num_queries * entropy, layer.num_queries * (1 - null))
        for layer in layers
        for entropy, null in zip(layer.entropy, layer.null_rate, strict=True)
        if entropy is not None
    ]
    total, rows = map(sum, zip(*of_heads, strict=True)) if of_heads else (0, 0)
    return total / rows if rows else None


ENTROPY_NOT_NULL = of_analysis("entropy of rows that are not null", of_rows_not_null)

NULL_RATE = of_analysis("null rows", over_heads("null_rate"))
"""Share of the rows that give no weight to any key."""
