"""Statistics over seeds: is one model better than another, whichever seed it is trained with?

A test on the sentences of a test set (`significance`) says whether two translations differ; these say whether two
models do. The seeds pair the runs: d_s is the difference between the scores of two models with seed s.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, stdev

CONFIDENCE = 0.95
ALPHA, POWER = 0.05, 0.8
MAX_SEEDS = 1000


@dataclass(frozen=True)
class SeedComparison:
    """Two models, compared over the seeds that both have.

    Attributes:
        num_seeds: number of pairs, n.
        difference: mean of d.
        interval: its 95 % confidence interval (Student's t); None for one pair.
        p_value: two-sided, exact sign-flip test; at least 2^(1 − n).
        seeds_needed: pairs with which a difference of this size would be significant in four of five studies; None if
            there is no difference, more than MAX_SEEDS would be needed, or there is one pair.
    """

    num_seeds: int
    difference: float
    interval: tuple[float, float] | None
    p_value: float
    seeds_needed: int | None


def compare_seeds(scores: Mapping[int, float], baseline: Mapping[int, float]) -> SeedComparison:
    """Compare two models given their scores, seed -> score; raises ValueError if they have no seed in common."""
    differences = [scores[seed] - baseline[seed] for seed in sorted(scores.keys() & baseline.keys())]
    if not differences:
        raise ValueError(f"expected a common seed, got {sorted(scores)} and {sorted(baseline)}")
    return SeedComparison(
        len(differences),
        mean(differences),
        confidence_interval(differences),
        sign_flip_p_value(differences),
        seeds_needed(differences),
    )


def sign_flip_p_value(differences: Sequence[float]) -> float:
    """Return the two-sided p-value of the mean: if both models are equally good, every sign of every d is as likely.

    All 2^n combinations of signs are tried (scipy draws 9,999 of them from 14 seeds on).
    """
    from scipy.stats import permutation_test

    if len(differences) == 1 or not any(differences):
        return 1.0
    result = permutation_test(
        (differences,), lambda d, axis: d.mean(axis=axis), permutation_type="samples", vectorized=True
    )
    return float(result.pvalue)


def confidence_interval(differences: Sequence[float]) -> tuple[float, float] | None:
    """Return the interval that contains the mean of d with a probability of 95 %, if d is normal; None for one pair."""
    from scipy.stats import t

    n = len(differences)
    if n == 1:
        return None
    half_width = t.ppf((1 + CONFIDENCE) / 2, n - 1) * stdev(differences) / math.sqrt(n)
    return mean(differences) - half_width, mean(differences) + half_width


def seeds_needed(differences: Sequence[float]) -> int | None:
    """Return how many pairs the sign-flip test can reach ALPHA with and a t-test has a power of POWER with."""
    from scipy.stats import nct, t

    if len(differences) == 1 or not mean(differences):
        return None
    least = 1 + math.ceil(math.log2(1 / ALPHA))  # 2^(1 − n) ≤ ALPHA
    spread = stdev(differences)
    if not spread:
        return least
    effect = abs(mean(differences)) / spread
    for n in range(least, MAX_SEEDS + 1):
        critical = t.ppf(1 - ALPHA / 2, n - 1)
        if nct.sf(critical, n - 1, effect * math.sqrt(n)) >= POWER:
            return n
    return None


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected for their number (Holm 1979): each is valid whatever the others are."""
    corrected = [0.0] * len(p_values)
    largest = 0.0
    for rank, i in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[i]))
        corrected[i] = largest
    return corrected
