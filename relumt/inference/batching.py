"""Batches of sentences of similar length."""

from collections.abc import Iterable, Iterator

import numpy as np
from fairseq.data.data_utils import batch_by_size

MAX_TOKENS = 12_000
"""Source tokens in a batch with padding, at most; fairseq-generate's default."""


def batches_by_length(lengths: Iterable[int], batch_size: int) -> Iterator[list[int]]:
    """Yield batches of indices of similar length: at most `batch_size`, and MAX_TOKENS tokens with padding.

    A sentence of more tokens is a batch of its own.
    """
    sizes = np.fromiter(lengths, dtype=np.int64)
    order = np.argsort(sizes, kind="stable")
    limit = max(MAX_TOKENS, int(sizes.max(initial=0)))
    for batch in batch_by_size(order, lambda _: 0, sizes, max_tokens=limit, max_sentences=batch_size):
        yield batch.tolist()
