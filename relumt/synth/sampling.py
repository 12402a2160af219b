"""Weighted sampling that uses only `random.Random.random`, whose values Python guarantees across versions."""

from bisect import bisect
from collections.abc import Sequence
from itertools import accumulate
from random import Random
from typing import Generic, TypeVar

Item = TypeVar("Item")

# Weight of rank r: 1 / (r + ZIPF_SHIFT) ** ZIPF_EXPONENT. Flatter than in natural text (shift 0, exponent 1), so that
# sentences rarely recur although they are short.
ZIPF_SHIFT = 4.0
ZIPF_EXPONENT = 0.8


class Weighted(Generic[Item]):
    """Items with weights. `draw` picks one with probability proportional to its weight."""

    def __init__(self, items: Sequence[Item], weights: Sequence[float]):
        self.items = tuple(items)
        self._cumulative = tuple(accumulate(weights))
        if len(self.items) != len(self._cumulative):
            raise ValueError(f"{len(self.items)} items but {len(self._cumulative)} weights")

    def draw(self, rng: Random) -> Item:
        """Return a random item."""
        return self.items[bisect(self._cumulative, rng.random() * self._cumulative[-1], hi=len(self.items) - 1)]


def zipfian(items: Sequence[Item]) -> Weighted[Item]:
    """Weight items that are in order of decreasing frequency."""
    weights = [(rank + ZIPF_SHIFT) ** -ZIPF_EXPONENT for rank in range(1, len(items) + 1)]
    return Weighted(items, weights)


def uniform(items: Sequence[Item]) -> Weighted[Item]:
    """Weight all items equally."""
    return Weighted(items, [1.0] * len(items))


def chance(rng: Random, probability: float) -> bool:
    """Return True with the given probability."""
    return rng.random() < probability
