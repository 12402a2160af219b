"""Ends the data loader's worker of an epoch with the epoch.

With --update-epoch-batch-itr, fairseq makes a new iterator over batches for each epoch. The iterator and its sampler
refer to each other, so the old one and its worker live until Python looks for cycles, often for many epochs. Each
worker keeps all memory that the training process had when it was forked.
"""

import weakref
from collections.abc import Callable
from typing import Any

from fairseq.data import iterators
from fairseq.data.iterators import EpochBatchIterator


class AcyclicEpochBatchIterator(EpochBatchIterator):
    """fairseq's iterator over the batches of epochs, to which its sampler refers only weakly."""

    @property
    def ordered_batches(self) -> Callable[..., Any]:
        """What the sampler keeps: fairseq's method of the same name, which does not keep the iterator alive."""
        iterator = weakref.ref(self)
        return lambda *args: EpochBatchIterator.ordered_batches(iterator(), *args)


def install() -> None:
    """Replace the class for fairseq's tasks; calling it again has no effect."""
    iterators.EpochBatchIterator = AcyclicEpochBatchIterator
