"""Compare a result of a kernel with float64."""

import math
from typing import NamedTuple

from torch import Tensor

MAX_ELEMENT_FACTOR = 4
"""How many times the tolerance the largest error of an element may be, relative to the largest element."""


class Result(NamedTuple):
    """A result as a kernel computed it and as float64 does, and the relative error that is allowed."""

    name: str
    actual: Tensor
    expected: Tensor
    tolerance: float

    def disagreement(self) -> str:
        """Return in which way both differ by more than rounding; "" if they do not. NaN and ∞ differ."""
        actual, expected = self.actual.double().cpu(), self.expected.double()
        if actual.shape != expected.shape:
            return f"the {self.name} has shape {list(actual.shape)} instead of {list(expected.shape)}"
        difference = actual - expected
        error = (difference.norm() / expected.norm()).item()
        element_error = (difference.abs().max() / expected.abs().max()).item() / MAX_ELEMENT_FACTOR
        worst = max(error, element_error) if math.isfinite(error + element_error) else math.inf
        if worst <= self.tolerance:
            return ""
        return f"the {self.name} differs from float64 by {worst:.1g} (allowed: {self.tolerance:.1g})"
