"""The file P.docs beside a text P: the number of consecutive sentences in each document, one per line."""

import re
from collections.abc import Iterable, Sequence
from itertools import groupby, islice
from pathlib import Path

from relumt.errors import UserError, quote
from relumt.files import read_lines

NUMBER = re.compile(r"0*[1-9]\d{0,17}", re.ASCII)


def read_lengths(path: Path) -> list[int]:
    """Return the numbers in a file, one per line; raises `UserError` for any that is not a positive integer."""
    lengths = []
    for number, line in enumerate(read_lines(path), start=1):
        text = line.strip()
        if not NUMBER.fullmatch(text):
            raise UserError(f"{path}:{number}: expected a number of sentences, found {quote(text)}; write one per line")
        lengths.append(int(text))
    return lengths


def read_document_lengths(path: Path, num_sentences: int) -> list[int]:
    """Return the document lengths in a file; raises `UserError` unless their sum is `num_sentences`."""
    lengths = read_lengths(path)
    if sum(lengths) != num_sentences:
        found = f"its documents have {sum(lengths)} sentences, but the text has {num_sentences} lines"
        raise UserError(f"{path}: {found}; correct or remove the file")
    return lengths


def lengths_after_cleaning(lengths: Iterable[int], kept: Sequence[bool]) -> list[int]:
    """Return the document lengths after removing the sentences that `kept` marks with False.

    A removed sentence ends its document, so that the sentences around it do not count as consecutive.
    """
    marks = iter(kept)
    remaining = []
    for length in lengths:
        runs = groupby(islice(marks, length))
        remaining += [sum(1 for _ in run) for is_kept, run in runs if is_kept]
    return remaining


def write_lengths(path: Path, lengths: Iterable[int]) -> None:
    """Write one length per line."""
    path.write_text("".join(f"{length}\n" for length in lengths), encoding="utf-8")
