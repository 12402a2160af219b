"""Both attentions in NumPy with 64-bit integers: what the kernels must return bit for bit. Formulas: `__init__.py`."""

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

WEIGHT_BITS = {16: 7, 32: 13}
"""Width of the sums → B: the weights of a row sum to at most 2^B."""

MAX_EXPONENT = 255
"""The largest x of the integer softmax, for a weight of 2^-16 before the normalization."""


def inhibitor(q: Array, k: Array, v: Array, shift: int, alpha: int) -> Array:
    """Return the Inhibitor's output, int64 [n, d], query by query."""
    queries, keys, values = (x.astype(np.int64) for x in (q, k, v))
    output = np.empty_like(values)
    for i, query in enumerate(queries):
        z = np.maximum((np.abs(query - keys).sum(1) >> shift) - alpha, 0)
        output[i] = np.maximum(values - z[:, None], 0).sum(0)
    return output


def dot_product(q: Array, k: Array, v: Array, shift: int, width: int) -> Array:
    """Return the output of attention with dot products, int64 [n, d]; `width` sets the precision of the weights."""
    scores = q.astype(np.int64) @ k.astype(np.int64).T
    return (softmax(scores, shift, width) @ v.astype(np.int64)) >> WEIGHT_BITS[width]


def softmax(scores: Array, shift: int, width: int) -> Array:
    """Return the integer softmax of each row, int64 [n, n]."""
    powers = power_of_two(np.minimum((scores.max(1, keepdims=True) - scores) >> shift, MAX_EXPONENT))
    inverse = 2 ** (16 + WEIGHT_BITS[width]) // powers.sum(1, keepdims=True)
    return powers * inverse >> 16


def power_of_two(x: Array) -> Array:
    """Return 2^(14 − x/16), interpolated linearly between whole exponents and rounded down."""
    return (2**14 - (x % 16) * 2**9) >> x // 16
