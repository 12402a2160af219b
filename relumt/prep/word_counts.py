"""Counts of the words of texts, on all cores."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from relumt.prep.workers import Chunk, map_chunks


def count_words(texts: Sequence[Path]) -> Counter[str]:
    """Return how often each word occurs in the texts, which relumt wrote."""
    counts: Counter[str] = Counter()
    for counted in map_chunks(_count_words, texts):
        counts.update(counted)
    return counts


def _count_words(chunk: Chunk) -> dict[str, int]:
    return dict(Counter(word for line in chunk.read_lines() for word in line.split()))
