"""Statistics over seeds: is one model better than another, whichever seed it is trained with?

A test on the sentences of a test set (`significance`) says whether two translations differ; these say whether two
models do. The seeds pair the runs: d_s is the difference between the scores of two models with seed s.
"""

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, stdev

import numpy as np

CONFIDENCE = 0.95
ROUNDING = 1e-9
"""Relative difference that is rounding: losses are logged with three digits after the point."""


@dataclass(frozen=True)
class SeedComparison:
    """Two models, compared over the seeds that both have.

    Attributes:
        difference: mean of d.
        interval: its 95% confidence interval (Student's t).
        p_value: p-value of a two-sided sign-flip test; at least 2^(1 − n).
    """

    difference: float
    interval: tuple[float, float] | None
    p_value: float


def compare_seeds(scores: Mapping[int, float], baseline: Mapping[int, float]) -> SeedComparison:
    """Compare two models given their scores, seed -> score; they have two seeds in common at least."""
    differences = [scores[seed] - baseline[seed] for seed in sorted(scores.keys() & baseline.keys())]
    return SeedComparison(mean(differences), confidence_interval(differences), sign_flip_p_value(differences))


def sign_flip_p_value(differences: Sequence[float]) -> float:
    """Return the two-sided p-value of the mean: if both models are equally good, every sign of every d is as likely.

    Up to 13 pairs, scipy tries all 2^n combinations of signs; above, it draws 9,999 of them.
    """
    from scipy.stats import permutation_test

    def rounded_mean(signed: np.ndarray, axis: int) -> np.ndarray:
        """Return means in which those that are equal but for rounding are ties, which count."""
        return signed.mean(axis=axis).round(9)

    found = permutation_test((differences,), rounded_mean, permutation_type="samples", vectorized=True, rng=1)
    return float(found.pvalue)


def confidence_interval(differences: Sequence[float]) -> tuple[float, float] | None:
    """Return the interval that contains the mean of d with a probability of 95%, if d is normal; None for one pair."""
    from scipy.stats import t

    n = len(differences)
    if n == 1:
        return None
    half_width = t.ppf((1 + CONFIDENCE) / 2, n - 1) * stdev(differences) / math.sqrt(n)
    return mean(differences) - half_width, mean(differences) + half_width


def dunnett_p_values(models: Sequence[Sequence[float]], baseline: Sequence[float]) -> list[float | None]:
    """Return two-sided p-values of models against one baseline (Dunnett 1955), corrected for the number of models.

    All models and the baseline share one estimate of the standard deviation over seeds, so a large difference can be
    significant with few seeds, unlike in `sign_flip_p_value`. In return, the test assumes that scores are normal with
    the same standard deviation for each model. It does not pair the seeds.

    Args:
        models: the scores of each model, one per seed.
        baseline: the scores of the baseline; it or a model needs two at least.

    Returns:
        p-values with an error below 0.001, because scipy integrates at random points; None for each model if no score
        differs from others of the same model, so that there is no estimate.
    """
    from scipy.stats import dunnett

    spreads = [max(scores) - min(scores) for scores in (*models, baseline)]
    if max(spreads) <= ROUNDING * max(map(abs, baseline)):
        return [None] * len(models)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a model whose scores are all equal has no variance, correctly
        found = dunnett(*map(np.array, models), control=np.array(baseline), rng=1)
    return [float(p_value) for p_value in found.pvalue]


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected for their number (Holm 1979): each is valid whatever the others are."""
    order = np.argsort(p_values, kind="stable")
    factors = np.arange(len(order), 0, -1)
    corrected = np.empty(len(order))
    corrected[order] = np.maximum.accumulate(np.minimum(1, np.array(p_values)[order] * factors))
    return corrected.tolist()
