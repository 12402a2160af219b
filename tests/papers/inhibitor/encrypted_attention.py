"""What the circuits of circuits.py have to compute, pair by pair with Python's integers.

    Inhibitor      H_ic = Σ_j max(v_jc − Σ_b |q_ib − k_jb|, 0)                              [IN] Eq. 3–4 with α = 0
    dot product    Σ_j w_ij v_jc    w_ij = weight(s_ij − log(Σ_j exp(s_ij)))    s = q kᵀ     all three are tables

The tables of `dot_product` come from decimal arithmetic here, so that this file shares no code with the circuits.
Shapes: q, k, v and output [n, d] as lists of rows.
"""

from collections.abc import Sequence
from decimal import ROUND_HALF_EVEN, Decimal
from functools import cache

Matrix = Sequence[Sequence[int]]

SCORE_STEP = Decimal("0.1")
MAX_SCORE, MAX_EXP, MAX_WEIGHT = 18, 15, 12


def inhibitor(q: Matrix, k: Matrix, v: Matrix) -> list[list[int]]:
    """Return H_ic = Σ_j max(v_jc − Σ_b |q_ib − k_jb|, 0)."""
    outputs = []
    for query in q:
        distances = [sum(abs(a - b) for a, b in zip(query, key, strict=True)) for key in k]
        columns = zip(*v, strict=True)
        outputs.append([sum(max(x - z, 0) for x, z in zip(column, distances, strict=True)) for column in columns])
    return outputs


def dot_product(q: Matrix, k: Matrix, v: Matrix) -> list[list[int]]:
    """Return Σ_j w_ij v_jc with the integer weights of `softmax_weights`."""
    outputs = []
    for query in q:
        weights = softmax_weights([sum(a * b for a, b in zip(query, key, strict=True)) for key in k])
        outputs.append([sum(w * x for w, x in zip(weights, column, strict=True)) for column in zip(*v, strict=True)])
    return outputs


ORACLES = {"inhibitor": inhibitor, "dot product": dot_product}
"""Attention -> function; the keys are those of the circuits."""


def softmax_weights(scores: Sequence[int]) -> list[int]:
    """Return the integer weights of one query: exponentials, the logarithm of their sum, and exponentials again."""
    log_sum = _log(sum(_exponential(score) for score in scores))
    return [_weight(score - log_sum) for score in scores]


@cache
def _exponential(score: int) -> int:
    return max(1, _round(MAX_EXP * (SCORE_STEP * (score - MAX_SCORE)).exp()))


@cache
def _log(total: int) -> int:
    return _round(MAX_SCORE + (Decimal(total) / MAX_EXP).ln() / SCORE_STEP)


@cache
def _weight(log: int) -> int:
    return min(MAX_WEIGHT, _round(MAX_WEIGHT * (SCORE_STEP * log).exp()))


def _round(x: Decimal) -> int:
    return int(x.to_integral_value(ROUND_HALF_EVEN))
