"""Chunks of documents: examples, and properties of random documents."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from relumt.plugin.tasks.chunks import chunk_sizes, chunk_starts
from relumt.plugin.tasks.documents import ConcatenatedSentences

EOS, SEPARATOR = 2, 9


def find_starts(documents, source, target, limit, separators=False):
    return chunk_starts(documents, np.array(source), np.array(target), limit, separators).tolist()


def test_chunks_end_with_their_document_and_long_sentences_are_chunks_of_their_own():
    sizes = [3, 30, 3, 3]
    assert find_starts([3, 1], sizes, sizes, 20) == [0, 1, 2, 3]


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


@given(corpora())
def test_items_are_the_concatenated_sentences_and_have_the_announced_sizes(corpus):
    documents, source, target, limit, separators = corpus
    sentences = [torch.cat([torch.full((size - 1,), 10 + i), torch.tensor([EOS])]) for i, size in enumerate(source)]
    starts = chunk_starts(documents, np.array(source), np.array(target), limit, separators)
    chunks = ConcatenatedSentences(sentences, np.array(source), starts, SEPARATOR if separators else None)
    assert [len(chunks[i]) for i in range(len(chunks))] == chunks.sizes.tolist()
    tokens = [token for i in range(len(chunks)) for token in chunks[i].tolist()]
    assert tokens.count(EOS) == len(chunks)
    assert tokens.count(SEPARATOR) == (len(source) - len(chunks)) * separators
    words = [token for token in tokens if token >= 10]
    assert words == [token for sentence in sentences for token in sentence[:-1].tolist()]
