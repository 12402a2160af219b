"""The side file P.docs: how many consecutive sentences make up each document, one number a line."""

from collections.abc import Iterable, Sequence
from itertools import groupby, islice
from pathlib import Path

from relumt.errors import UserError
from relumt.text_files import read_lines


def documents_path(prefix: str) -> Path:
    """Return where the documents of the text `prefix` would be described."""
    return Path(f"{prefix}.docs")


def read_lengths(path: Path) -> list[int]:
    """Return the numbers in a file, one a line; raises `UserError` for any that is not positive."""
    lengths = []
    for number, line in enumerate(read_lines(path), start=1):
        text = line.strip()
        if not text.isdecimal() or int(text) == 0:
            raise UserError(f"{path}:{number}: {text[:40]!r} is no number of sentences; write one integer a line")
        lengths.append(int(text))
    return lengths


def read_documents(path: Path, sentences: int) -> list[int]:
    """Return the lengths of the documents; raises `UserError` unless they add up to `sentences`."""
    lengths = read_lengths(path)
    if sum(lengths) != sentences:
        raise UserError(
            f"{path}: its documents have {sum(lengths)} sentences but the text has {sentences} lines; "
            "correct or remove it"
        )
    return lengths


def after_cleaning(lengths: Iterable[int], kept: Sequence[bool]) -> list[int]:
    """Return the lengths when only the sentences that `kept` marks remain.

    A document ends where a sentence of it was removed, lest its neighbours be taken for consecutive ones.
    """
    marks = iter(kept)
    remaining = []
    for length in lengths:
        runs = groupby(islice(marks, length))
        remaining += [sum(1 for _ in run) for stays, run in runs if stays]
    return remaining


def write_lengths(path: Path, lengths: Iterable[int]) -> None:
    """Write one length a line."""
    path.write_text("".join(f"{length}\n" for length in lengths), encoding="utf-8")
