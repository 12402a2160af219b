"""Documents that were translated in chunks: join chunks into documents, split chunks into sentences.

A chunk is one line of output. It holds consecutive sentences of one document, with a separator token between them if
the model was trained with --document-separator.
"""

import re
from collections.abc import Iterable, Sequence
from itertools import accumulate, islice

from relumt.errors import UserError


def join_groups(lines: Iterable[str], lengths: Sequence[int]) -> list[str]:
    """Join consecutive lines with spaces: the first `lengths[0]` lines, the next `lengths[1]` lines, and so on.

    Raises:
        UserError: the lengths do not add up to the number of lines.
    """
    lines = list(lines)
    if sum(lengths) != len(lines):
        raise UserError(f"expected documents of {len(lines)} lines in total, found {sum(lengths)}; correct the lengths")
    remaining = iter(lines)
    return [" ".join(filter(None, islice(remaining, length))) for length in lengths]


def chunks_per_document(chunks: Sequence[int], documents: Sequence[int]) -> list[int]:
    """Return the number of chunks that make up each document.

    Args:
        chunks: number of sentences in each chunk.
        documents: number of sentences in each document.

    Raises:
        UserError: a chunk crosses the end of a document, or the total numbers of sentences differ.
    """
    if sum(chunks) != sum(documents):
        raise UserError(
            f"the chunks have {sum(chunks)} sentences, but the documents have {sum(documents)}; use matching files"
        )
    chunks_before = {end: count for count, end in enumerate(accumulate(chunks, initial=0))}
    counts, previous = [], 0
    for number, end in enumerate(accumulate(documents), start=1):
        if end not in chunks_before:
            raise UserError(f"a chunk crosses the end of document {number}; use the chunks of these documents")
        counts.append(chunks_before[end] - previous)
        previous = chunks_before[end]
    return counts


def detach_separators(chunk: str, separator: str) -> str:
    """Return a chunk with spaces around its separators; unchanged if `separator` is "".

    Joining subwords can attach a separator to the words beside it. `relumt prepare` refuses a separator that occurs
    within a word of the texts.
    """
    return chunk.replace(separator, f" {separator} ") if separator else chunk


def remove_separators(chunk: str, separator: str) -> str:
    """Return the tokens of a chunk without separators; unchanged if `separator` is ""."""
    return " ".join(filter(None, split_chunk(chunk, separator)))


def split_chunk(chunk: str, separator: str) -> list[str]:
    """Return the sentences between a chunk's separators, or the whole chunk if `separator` is ""."""
    if not separator:
        return [chunk]
    return [" ".join(part.split()) for part in re.split(rf"(?<!\S){re.escape(separator)}(?!\S)", chunk)]


def find_mismatches(translated: Sequence[str], chunks: Sequence[int], separator: str) -> list[int]:
    """Return the indices of the chunks that do not split into the right number of sentences.

    Args:
        translated: one chunk per line.
        chunks: number of sentences in each chunk.
        separator: token between two sentences.
    """
    pairs = zip(translated, chunks, strict=True)
    return [index for index, (line, count) in enumerate(pairs) if len(split_chunk(line, separator)) != count]


def split_chunks(translated: Sequence[str], chunks: Sequence[int], separator: str) -> list[str]:
    """Return one line per sentence. A chunk with a mismatch becomes a line with all its text and empty lines."""
    sentences = []
    for chunk, count in zip(translated, chunks, strict=True):
        parts = split_chunk(chunk, separator)
        if len(parts) != count:
            parts = [remove_separators(chunk, separator), *[""] * (count - 1)]
        sentences += parts
    return sentences
