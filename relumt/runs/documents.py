"""Scoring translated documents: BLEU with a document a line (d-BLEU) and, where separators allow, a sentence a line.

Chunks are lines of output; each holds so many consecutive sentences, and no chunk crosses a document.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from relumt.errors import UserError


def joined(lines: Iterable[str], lengths: Sequence[int]) -> list[str]:
    """One line for every so many `lines`, joined by spaces; raises UserError unless the lengths add up."""
    lines = list(lines)
    if sum(lengths) != len(lines):
        raise UserError(
            f"documents of {sum(lengths)} lines in all do not fit {len(lines)} lines; give the right lengths"
        )
    rest = iter(lines)
    return [" ".join(filter(None, islice(rest, length))) for length in lengths]


def chunks_per_document(chunks: Sequence[int], documents: Sequence[int]) -> list[int]:
    """How many chunks make up each document.

    Args:
        chunks: sentences in each chunk.
        documents: sentences in each document.

    Raises:
        UserError: a chunk crosses the end of a document, or the two do not hold the same number of sentences.
    """
    if sum(chunks) != sum(documents):
        raise UserError(
            f"the chunks hold {sum(chunks)} sentences and the documents {sum(documents)}; give matching files"
        )
    rest = iter(chunks)
    counts = []
    for number, sentences in enumerate(documents, start=1):
        count = 0
        while sentences > 0:
            sentences -= next(rest)
            count += 1
        if sentences < 0:
            raise UserError(f"a chunk crosses the end of document {number}; give the chunks of these documents")
        counts.append(count)
    return counts


def without_separators(chunk: str, separator: str) -> str:
    """The chunk's words but the separators."""
    return " ".join(word for word in chunk.split() if word != separator) if separator else chunk


@dataclass(frozen=True)
class Sentences:
    """A sentence a line.

    Attributes:
        lines: the translations; empty where a chunk that came apart otherwise has no substitute.
        replaced: how many chunks had another number of separators than sentences to separate.
    """

    lines: list[str]
    replaced: int


def sentences_of(
    translated: Sequence[str], chunks: Sequence[int], separator: str, one_by_one: Sequence[str] | None
) -> Sentences:
    """Take translated chunks apart at their separators.

    Args:
        translated: a chunk a line.
        chunks: sentences in each.
        separator: the word between two sentences.
        one_by_one: translations of the sentences each for itself, which stand in for a chunk that has another number
            of separators than it should; None: such chunks give one line with all of it, and empty ones.
    """
    lines: list[str] = []
    replaced = 0
    for chunk, sentences in zip(translated, chunks, strict=True):
        parts = split_chunk(chunk, separator)
        if len(parts) != sentences:
            replaced += 1
            start = len(lines)
            whole = [without_separators(chunk, separator), *[""] * (sentences - 1)]
            parts = whole if one_by_one is None else list(one_by_one[start : start + sentences])
        lines += parts
    return Sentences(lines, replaced)


def split_chunk(chunk: str, separator: str) -> list[str]:
    """The sentences between a chunk's separators; all of it where there is no separator to look for."""
    if not separator:
        return [chunk]
    sentences: list[list[str]] = [[]]
    for word in chunk.split():
        if word == separator:
            sentences.append([])
        else:
            sentences[-1].append(word)
    return [" ".join(sentence) for sentence in sentences]
