"""The numbers that a kernel works on, and the bounds within which none of its sums overflows."""

from dataclasses import dataclass

import numpy as np

from relumt.errors import UserError
from relumt.integer_attention.oracle import WEIGHT_BITS, Array

TILE = 32
"""n and d must be multiples of this: the kernels compute 32 columns at a time."""
MAX_SIZE = 4096
"""The largest n or d; the kernels index with 32 bits."""

MAX_INPUT, MAX_VALUE = 15, 100
"""The largest |q| and |k|, and the largest |v|, of a random problem: within all bounds up to n = 256 and d = 128."""


@dataclass(frozen=True)
class Problem:
    """A single head's attention.

    Attributes:
        q, k, v: int16 [n, d].
        inhibitor_shift: the Inhibitor divides distances by 2 to this power.
        alpha: what it subtracts from them.
        softmax_shift: scores are divided by 2 to this power, then counted in 1/16 of a power of two.
    """

    q: Array
    k: Array
    v: Array
    inhibitor_shift: int
    alpha: int
    softmax_shift: int

    def __post_init__(self) -> None:
        """Check shapes, types and settings; raise UserError if a kernel could not work on them."""
        shapes = {x.shape for x in (self.q, self.k, self.v)}
        if len(shapes) > 1 or self.q.ndim != 2 or any(x.dtype != np.int16 for x in (self.q, self.k, self.v)):
            found = ", ".join(f"{x.dtype} {list(x.shape)}" for x in (self.q, self.k, self.v))
            raise UserError(f"expected q, k and v as int16 [n, d], found {found}; convert them")
        if any(size % TILE or not 0 < size <= MAX_SIZE for size in self.q.shape):
            n, d = self.q.shape
            raise UserError(f"expected n and d as multiples of {TILE} up to {MAX_SIZE:,}, found n = {n}, d = {d}; pad")
        if not (0 <= self.inhibitor_shift < 16 and 0 <= self.softmax_shift < 16 and 0 <= self.alpha < 2**15):
            settings = f"shifts {self.inhibitor_shift} and {self.softmax_shift}, alpha {self.alpha}"
            raise UserError(f"expected shifts from 0 to 15 and alpha from 0 to 32,767, found {settings}; change them")

    def require_inhibitor_fits(self, width: int) -> None:
        """Raise UserError if a sum of the Inhibitor could overflow `width` bits."""
        n, d = self.q.shape
        q, k = self.q.astype(np.int64), self.k.astype(np.int64)
        difference = int(max(q.max() - k.min(), k.max() - q.min()))
        _require_below(width, f"d·|Δ| = {d}·{difference:,}", d * difference)
        value = max(int(self.v.max()), 0)
        _require_below(width, f"n·V = {n}·{value:,}", n * value)

    def require_dot_product_fits(self, width: int) -> None:
        """Raise UserError if a sum of dot products could overflow `width` bits."""
        d = self.q.shape[1]
        query, key, value = (int(np.abs(x.astype(np.int64)).max()) for x in (self.q, self.k, self.v))
        _require_below(width, f"d·|q|·|k| = {d}·{query:,}·{key:,}", d * query * key)
        weight = 2 ** WEIGHT_BITS[width]
        _require_below(width, f"2^B·|v| = {weight:,}·{value:,}", weight * value)


def random_problem(n: int, d: int, seed: int = 1) -> Problem:
    """Return a random problem; about a third of the pairs of a key and a component pass the Inhibitor."""
    generator = np.random.default_rng(seed)

    def draw(largest: int) -> Array:
        return generator.integers(-largest, largest + 1, (n, d)).astype(np.int16)

    q, k, v = draw(MAX_INPUT), draw(MAX_INPUT), draw(MAX_VALUE)
    # A distance is about 10.3·d, hence about 82 after the shift; alpha removes half.
    return Problem(q, k, v, inhibitor_shift=d.bit_length() - 4, alpha=40, softmax_shift=5)


def _require_below(width: int, description: str, number: int) -> None:
    if number >= 2 ** (width - 1):
        advice = "scale the inputs down" + (", or use sums of 32 bits" if width == 16 else "")
        raise UserError(
            f"sums of {width} bits could overflow: expected less than {2 ** (width - 1):,}, "
            f"found {description} = {number:,}; {advice}"
        )
