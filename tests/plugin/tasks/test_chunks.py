"""Chunks of documents: examples, and properties of random documents."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from relumt.plugin.tasks.chunks import chunk_sizes, chunk_starts


def find_starts(documents, source, target, limit, separators=False):
    return chunk_starts(documents, np.array(source), np.array(target), limit, separators).tolist()


@st.composite
def corpora(draw):
    documents = draw(st.lists(st.integers(1, 12), min_size=1, max_size=8))
    sizes = st.lists(st.integers(1, 20), min_size=sum(documents), max_size=sum(documents))
    return documents, draw(sizes), draw(sizes), draw(st.integers(1, 60)), draw(st.booleans())


@given(corpora())
def test_every_sentence_is_in_one_chunk_within_the_limit_and_its_document(corpus):
    documents, source, target, limit, separators = corpus
    starts = find_starts(documents, source, target, limit, separators)
    ends = [*starts[1:], len(source)]
    assert starts[0] == 0 and all(start < end for start, end in zip(starts, ends, strict=True))
    boundaries = np.cumsum(documents).tolist()

    def length(sizes, start, end):
        return sum(size - 1 for size in sizes[start:end]) + (end - start - 1) * separators + 1

    for start, end in zip(starts, ends, strict=True):
        longest = max(length(source, start, end), length(target, start, end))
        assert end - start == 1 or longest <= limit
        assert not any(start < boundary < end for boundary in boundaries)
        if end not in boundaries:
            assert max(length(source, start, end + 1), length(target, start, end + 1)) > limit
    for sizes in (source, target):
        expected = [length(sizes, start, end) for start, end in zip(starts, ends, strict=True)]
        assert chunk_sizes(np.array(starts), np.array(sizes), separators).tolist() == expected
