"""The choice of beam search's length penalty (--lenpen) by BLEU on a subset other than the test set."""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from relumt.runs.field_types import NonNegative, Subset

MAX_CANDIDATES = 20
"""Values that may be compared."""

MAX_POWER = 10.0
"""Largest absolute value of --lenpen, a power of the length; higher powers leave the range of fp32."""


def check_candidates(values: Collection[float]) -> None:
    """Raise ValueError, which says what is wrong, unless beam search can compare these values of --lenpen."""
    if len(values) > MAX_CANDIDATES:
        raise ValueError(f"expected at most {MAX_CANDIDATES} values, found {len(values)}")
    if unusable := [value for value in values if not (math.isfinite(value) and abs(value) <= MAX_POWER)]:
        raise ValueError(f"expected numbers from {-MAX_POWER:g} to {MAX_POWER:g}, found {unusable[0]}")
    if len(set(values)) < len(values):
        raise ValueError(f"expected distinct values, found {', '.join(map(str, values))}")


def best_penalty(bleu: Mapping[str, float]) -> str:
    """Return the value of --lenpen with the highest BLEU; of equal ones the closest to 1, then the smallest.

    Args:
        bleu: BLEU by value.
    """

    def rank(value: str) -> tuple[float, float, float]:
        distance = round(abs(float(value) - 1), 9)  # in binary, 0.6 and 1.4 are not equally far from 1
        return -bleu[value], distance, float(value)

    return min(bleu, key=rank)


@dataclass(frozen=True)
class LengthPenaltyChoice:
    """Which values of --lenpen were compared, and which one is the best.

    Attributes:
        subset: what was translated with each of them, "valid".
        data: checksum of the subset.
        signature: sacreBLEU's signature of the tokenized BLEU that they were compared by.
        bleu: BLEU by value, as --lenpen takes it.
        chosen: the best value.
    """

    subset: Subset
    data: str
    signature: str
    bleu: dict[str, NonNegative]
    chosen: str

    def __post_init__(self) -> None:
        check_candidates([float(value) for value in self.bleu])
        if not self.bleu or self.chosen != best_penalty(self.bleu):
            raise ValueError(f"the value {self.chosen} of --lenpen is not the best of those compared")

    @property
    def candidates(self) -> str:
        """The values that were compared, in ascending order and in words: "0.6, 1.0 and 1.4"."""
        *others, last = sorted(self.bleu, key=float)
        return f"{', '.join(others)} and {last}" if others else last
