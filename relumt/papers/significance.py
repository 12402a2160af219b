"""Significance of differences in BLEU, or in the mean of other programs' scores: sacreBLEU's paired tests, per seed.

Seeds are not pooled: two translations of the same sentences are not twice as many sentences.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sacrebleu.metrics import BLEU
from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.base import Score as MetricScore
from sacrebleu.significance import PairedTest

from relumt.corpora.tokenization import BLEU_TOKENIZERS
from relumt.errors import UserError
from relumt.papers.comparability import METRIC_TITLES
from relumt.papers.context import MIN_CHANGED, SIGNIFICANCE_TESTS
from relumt.papers.runs import Run
from relumt.runs.evaluation_record import Score
from relumt.runs.external_scores import load_segment_scores
from relumt.runs.record import RunRecord
from relumt.runs.scores import load_scored_lines

TOKENIZERS = ("none", "13a", *sorted(set(BLEU_TOKENIZERS.values())))
"""Tokenizers of sacreBLEU with which relumt scores; some of the others download models."""


class MeanScore(Metric):
    """The mean of segment scores as a metric, so that sacreBLEU compares two systems by it.

    Its hypotheses are the scores of the segments as text; it ignores the references.
    """

    def _preprocess_segment(self, sent: str) -> str:
        return sent

    def _extract_reference_info(self, refs: Sequence[str]) -> dict[str, Any]:
        return {}

    def _compute_segment_statistics(self, hypothesis: str, ref_kwargs: dict[str, Any]) -> list[float]:
        return [float(hypothesis), 1.0]

    def _aggregate_and_compute(self, stats: list[list[float]]) -> MetricScore:
        return self._compute_score_from_stats(np.sum(stats, axis=0))

    def _compute_score_from_stats(self, stats: Any) -> MetricScore:
        """Return the mean, given the sum of the scores and their number."""
        total, count = stats
        return MetricScore("mean", float(total / count))


def p_values(systems: Sequence[Run], baselines: Sequence[Run], metric: str, test: str) -> dict[int, float | None]:
    """Return seed -> p-value for the seeds for which both have scored files; None if too few translations differ.

    Args:
        systems, baselines: runs of two models.
        metric: a score in run.json.
        test: a key of SIGNIFICANCE_TESTS.
    """
    by_seed = {run.seed: run for run in baselines if has_segments(run.record, metric)}
    return {
        run.seed: _p_value(run, by_seed[run.seed], metric, test)
        for run in systems
        if run.seed in by_seed and has_segments(run.record, metric)
    }


def has_segments(record: RunRecord, metric: str) -> bool:
    """Return whether the files that a test needs are known: scored lines, or the scores of segments."""
    return record.external_score(metric) is not None or metric in record.test_evaluation.scored_files


def _p_value(system: Run, baseline: Run, metric: str, test: str) -> float | None:
    """Return the p-value of the difference between two runs, as `paired_p_value` does.

    Raises:
        UserError: a file of lines or segment scores is missing or has changed, or the test sets differ.
    """
    (lines, references), (others, other_references) = (load_segments(run, metric) for run in (system, baseline))
    if references != other_references:
        raise UserError(f"{system.folder} and {baseline.folder} have different references; evaluate both again")
    compared = same_bleu(system.folder, system.record.test_score(metric)) if metric in METRIC_TITLES else MeanScore()
    return paired_p_value(lines, others, references, compared, test)


def load_segments(run: Run, metric: str) -> tuple[list[str], list[str]]:
    """Return the lines that were scored and the references; for other programs, the scores of segments and dummies."""
    if metric in METRIC_TITLES:
        return load_scored_lines(run.folder, run.record.test_evaluation, metric)
    external = run.record.external_score(metric)
    assert external is not None  # see has_segments
    scores = load_segment_scores(run.folder, external)
    return scores, ["-"] * len(scores)


def paired_p_value(
    system: Sequence[str], baseline: Sequence[str], references: Sequence[str], metric: Metric, test: str
) -> float | None:
    """Return sacreBLEU's p-value of the difference between two systems, given the lines of their outputs.

    Returns:
        1 if the statistics of no line differ, for which sacreBLEU's bootstrap returns 0.001; None if those of fewer
        than MIN_CHANGED differ.
    """
    changed = count_changed(system, baseline, references, metric)
    if changed < MIN_CHANGED:
        return None if changed else 1.0
    named: list[tuple[str, Sequence[str]]] = [("baseline", baseline), ("system", system)]
    _, results = PairedTest(named, {"": metric}, [references], test_type=SIGNIFICANCE_TESTS[test])()
    (name,) = results.keys() - {"System"}
    return results[name][1].p_value  # type: ignore[union-attr]  # sacreBLEU's types allow no result


def count_changed(system: Sequence[str], baseline: Sequence[str], references: Sequence[str], metric: Metric) -> int:
    """Return how many lines contribute differently to a score, such as by the number of n-grams of the reference.

    Lines with different words may contribute the same, as two wrong words do.
    """
    # The public sentence_score would warn and compute a score for each line.
    statistics = (metric._extract_corpus_statistics(list(lines), [references]) for lines in (system, baseline))
    return sum(own != others for own, others in zip(*statistics, strict=True))


def same_bleu(folder: Path, score: Score) -> BLEU:
    """Return the BLEU with the signature of a score in a folder; raise UserError if the signature is not of BLEU."""
    settings = dict(part.partition(":")[::2] for part in score.signature.split("|"))
    if settings.get("tok") not in TOKENIZERS or "case" not in settings:
        raise UserError(f"{folder}: expected a signature of sacreBLEU, found '{score.signature}'; evaluate again")
    # force only silences the warning that a text looks tokenized
    return BLEU(tokenize=settings["tok"], lowercase=settings["case"] == "lc", force=True)
