"""What collectors have in common: they observe a model while it reads batches, and add up what they see."""

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any, Protocol

from relumt.inference.loaded_model import LoadedModel


class Collector(Protocol):
    """Collects measures of a model's layers batch by batch."""

    def observe(self, sample: dict[str, Any]) -> AbstractContextManager[None]:
        """Collect what the model computes inside the block; it must run on this batch there."""


def collect(loaded: LoadedModel, batches: Iterable[dict[str, Any]], collectors: Sequence[Collector]) -> int:
    """Force-decode batches while the collectors observe the model; return the number of sentence pairs."""
    pairs = 0
    for sample in batches:
        with ExitStack() as stack:
            for collector in collectors:
                stack.enter_context(collector.observe(sample))
            loaded.force_decode(sample)
        pairs += sample["nsentences"]
    return pairs
