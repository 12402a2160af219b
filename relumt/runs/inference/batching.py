"""Batches of sentences of similar length."""

from collections.abc import Iterable, Iterator

import numpy as np
from fairseq.data.data_utils import batch_by_size

MAX_TOKENS = 12_000
"""Tokens in a batch with padding, at most; fairseq-generate's default for source tokens."""


def batches_by_length(
    lengths: Iterable[int], batch_size: int | None = None, max_tokens: int = MAX_TOKENS
) -> Iterator[list[int]]:
    """Yield batches of the indices of sentences of similar length, from the shortest to the longest.

    Args:
        lengths: tokens of each sentence.
        batch_size: sentences in a batch, at most; None for no limit.
        max_tokens: tokens in a batch with padding, at most. If a sentence is longer, its length is the limit instead.
    """
    sizes = np.fromiter(lengths, dtype=np.int64)
    order = np.argsort(sizes, kind="stable")
    limit = max(max_tokens, int(sizes.max(initial=0)))
    # fairseq reads the sizes in the order of the indices
    for batch in batch_by_size(order, lambda _: 0, sizes[order], max_tokens=limit, max_sentences=batch_size):
        yield batch.tolist()
