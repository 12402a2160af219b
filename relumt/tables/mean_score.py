"""The mean of segment scores as a metric of sacreBLEU, so that sacreBLEU's paired tests compare two systems by it."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from sacrebleu.metrics.base import Metric, Score


class MeanScore(Metric):
    """A metric whose hypotheses are the scores of the segments as text; it ignores the references."""

    def _preprocess_segment(self, sent: str) -> str:
        return sent

    def _extract_reference_info(self, refs: Sequence[str]) -> dict[str, Any]:
        return {}

    def _compute_segment_statistics(self, hypothesis: str, ref_kwargs: dict[str, Any]) -> list[float]:
        return [float(hypothesis), 1.0]

    def _aggregate_and_compute(self, stats: list[list[float]]) -> Score:
        return self._compute_score_from_stats(np.sum(stats, axis=0))

    def _compute_score_from_stats(self, stats: Any) -> Score:
        """Return the mean, given the sum of the scores and their number."""
        total, count = stats
        return Score("mean", float(total / count))
