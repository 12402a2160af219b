"""Splits documents into chunks of consecutive sentences with at most L tokens ([RF] Appendix B).

The length of a chunk is that of its longer side, in the tokens that the model reads: subwords, a separator between
sentences if there is one, and a single end of sentence. [RF] does not say which side's length it limits.
"""

from collections.abc import Sequence
from itertools import islice

import numpy as np


def chunk_starts(
    documents: Sequence[int], source_sizes: np.ndarray, target_sizes: np.ndarray, limit: int, separators: bool
) -> np.ndarray:
    """Return the index of the first sentence of each chunk, int64, ascending.

    A chunk takes the next sentences of its document as long as it stays within `limit`. A single sentence that exceeds
    the limit is a chunk of its own.

    Args:
        documents: number of sentences in each document, in order.
        source_sizes: number of tokens of each source sentence, including the end of sentence.
        target_sizes: the same for the target.
        limit: L.
        separators: whether a separator stands between the sentences of a chunk.
    """
    starts = []
    join_size = int(separators) - 1  # joining two sentences adds a separator and removes an end of sentence
    sizes = enumerate(zip(source_sizes.tolist(), target_sizes.tolist(), strict=True))
    for num_sentences in documents:
        source_length = target_length = limit + 1  # so that the document's first sentence starts a chunk
        for index, (source_size, target_size) in islice(sizes, num_sentences):
            source_length += source_size + join_size
            target_length += target_size + join_size
            if source_length > limit or target_length > limit:
                starts.append(index)
                source_length, target_length = source_size, target_size
    return np.array(starts, dtype=np.int64)


def chunk_sizes(starts: np.ndarray, sizes: np.ndarray, separators: bool) -> np.ndarray:
    """Return the number of tokens of each chunk on the side whose sentences have `sizes` tokens, int64."""
    num_sentences = np.diff(starts, append=len(sizes))
    num_tokens = np.add.reduceat(sizes.astype(np.int64), starts)
    return num_tokens - (num_sentences - 1) * (1 - int(separators))
