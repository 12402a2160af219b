"""Exact oracles of quantized inference: NumPy and Python integers of any size, written from [IN] Eq. 3-5 alone."""

from fractions import Fraction

import numpy as np


def rounded(number: Fraction) -> int:
    """Return the nearest integer; halves go up, as a rounding shift does."""
    return (number + Fraction(1, 2)).__floor__()


def attend(q, k, v, shift: int, offset: int, largest: int, visible):
    """One head in exact integers: q [T, D], k [S, D], v [S, V] -> Σ_j (V_j − Z_ij)⁺, [T, V] of Python integers.

    Args:
        q, k, v: NumPy integers.
        shift: distances are divided by 2^shift, which may be negative.
        offset: α.
        largest: no value is larger.
        visible: [T, S] bool.
    """
    output = np.zeros((len(q), v.shape[1]), dtype=object)
    for i in range(len(q)):
        for j in range(len(k)):
            if visible[i, j]:
                distance = sum(abs(int(a) - int(b)) for a, b in zip(q[i], k[j], strict=True))
                z = max(rounded(Fraction(distance) / Fraction(2) ** shift) - offset, 0)
                output[i] += [max(int(x) - z, 0) for x in v[j]]
    assert all(abs(x) <= len(k) * largest for x in output.ravel())
    return output


def attend_signed(q, k, v, shift: int, offset: int, largest: int, visible):
    """[IN] Eq. 5 for one head: (V⁺ − Z)⁺ + (V⁻ + Z)⁻, arguments as `attend`."""
    output = np.zeros((len(q), v.shape[1]), dtype=object)
    for i in range(len(q)):
        for j in range(len(k)):
            if visible[i, j]:
                distance = sum(abs(int(a) - int(b)) for a, b in zip(q[i], k[j], strict=True))
                z = max(rounded(Fraction(distance) / Fraction(2) ** shift) - offset, 0)
                output[i] += [max(max(int(x), 0) - z, 0) + min(min(int(x), 0) + z, 0) for x in v[j]]
    return output


def linear(x, weight, bias):
    """x [N, I] @ weight [O, I]ᵀ + bias [O] in Python integers."""
    return x.astype(object) @ weight.astype(object).T + bias.astype(object)
