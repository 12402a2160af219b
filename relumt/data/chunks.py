"""Which consecutive sentences of a document make up a chunk of at most L tokens ([RF] Appendix B).

A chunk's length is the larger of its two sides', in the tokens that the model reads: subwords, a separator between two
sentences where one is asked for, and one end-of-sentence. [RF] counts one length and does not say of which side.
"""

from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import numpy as np

from relumt.data.documents import read_documents


def chunk_starts(
    documents: Sequence[int], source_sizes: np.ndarray, target_sizes: np.ndarray, limit: int, separators: bool
) -> np.ndarray:
    """Numbers of the sentences at which the chunks begin, int64, ascending.

    Each chunk takes the next sentences of its document as long as it stays within `limit`; a sentence that is longer
    alone makes a chunk of its own, see `too_long`.

    Args:
        documents: sentences in each document, in their order.
        source_sizes: tokens of each sentence, its end-of-sentence included.
        target_sizes: the same of the other side.
        limit: L.
        separators: whether one stands between two sentences of a chunk.
    """
    starts = []
    between = int(separators) - 1  # the separator that comes, and the end-of-sentence that goes
    sizes = enumerate(zip(source_sizes.tolist(), target_sizes.tolist(), strict=True))
    for sentences in documents:
        source_length = target_length = limit + 1  # so that the document's first sentence begins a chunk
        for number, (source, target) in islice(sizes, sentences):
            source_length += source + between
            target_length += target + between
            if source_length > limit or target_length > limit:
                starts.append(number)
                source_length, target_length = source, target
    return np.array(starts, dtype=np.int64)


def chunk_sizes(starts: np.ndarray, sizes: np.ndarray, separators: bool) -> np.ndarray:
    """Tokens of each chunk on the side whose sentences have `sizes`, int64."""
    sentences = np.diff(starts, append=len(sizes))
    tokens = np.add.reduceat(sizes.astype(np.int64), starts)
    return tokens - (sentences - 1) * (1 - int(separators))


def chunk_lengths(source: str, target: str, limit: int, separators: bool) -> list[int]:
    """How many sentences each chunk of a binarised text has.

    Args:
        source: path of one side, as fairseq names it without ".idx"; "SUBSET.docs" lies beside it.
        target: path of the other side.
        limit: L.
        separators: as of `chunk_starts`.
    """
    from fairseq.data.data_utils import load_indexed_dataset

    sides = [load_indexed_dataset(path, None, "mmap") for path in (source, target)]  # kept: sizes lie in their files
    sizes = [side.sizes for side in sides]
    path = Path(source)
    documents = read_documents(path.with_name(f"{path.name.split('.')[0]}.docs"), len(sizes[0]))
    starts = chunk_starts(documents, *sizes, limit, separators)
    return np.diff(starts, append=len(sizes[0])).tolist()


def too_long(source_sizes: np.ndarray, target_sizes: np.ndarray, limit: int) -> int:
    """How many sentences are longer than `limit` alone."""
    return int((np.maximum(source_sizes, target_sizes) > limit).sum())
