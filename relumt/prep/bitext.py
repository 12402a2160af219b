"""Checks and cleaning of a bitext: equal line counts, no empty lines, lengths and ratio of train's pairs."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from relumt.errors import UserError
from relumt.text_files import open_text, read_clean_lines

# As words these would become the symbols themselves: an end or a padding in the middle of a sentence.
RESERVED_WORDS = frozenset({"<s>", "</s>", "<pad>"})


def check_line_counts(names: tuple[Path, Path], counts: Sequence[int], lines: Callable[[int], Iterable[str]]) -> None:
    """Raise `UserError` if a side of a bitext is empty or the two have not as many lines.

    Args:
        names: of the two sides, for the message.
        counts: their numbers of lines.
        lines: gives the lines of a side, 0 or 1, once more, to find where they part.
    """
    for name, count in zip(names, counts, strict=True):
        if count == 0:
            raise UserError(f"{name}: empty file; give a text with one sentence a line")
    if counts[0] != counts[1]:
        lengths = [np.fromiter(map(len, lines(side)), dtype=np.int32) for side in (0, 1)]
        raise UserError(
            f"{names[0]} has {counts[0]} lines but {names[1]} has {counts[1]}; line i of one must translate line i of "
            f"the other, and by the lengths of their lines they part at about line {line_in_doubt(*lengths) + 1}"
        )


def line_in_doubt(one: np.ndarray, other: np.ndarray) -> int:
    """Where the longer of two texts most likely has its surplus lines, if it has them all in one place.

    Before that line lengths match as they stand, after it with the surplus left out; the line is the one that makes the
    logarithms of their ratios least in sum.

    Args:
        one: characters in each line of a text.
        other: the same of the other.

    Returns:
        Number of the line, from 0.
    """
    longer, shorter = (np.log1p(lengths) for lengths in sorted((one, other), key=len, reverse=True))
    surplus = len(longer) - len(shorter)
    before = np.abs(longer[: len(shorter)] - shorter)
    after = np.abs(longer[surplus:] - shorter)
    return int(np.argmin(np.concatenate([[0.0], np.cumsum(before)]) - np.concatenate([[0.0], np.cumsum(after)])))


def check_no_empty_line(text: Path, original: Path) -> None:
    """Raise `UserError` at the first empty line of the normalised `text`; `original` is the user's file."""
    for number, line in enumerate(read_clean_lines(text), start=1):
        if not line:
            raise UserError(f"{original}:{number}: empty line; valid and test need a sentence on every line")


def check_no_reserved_word(text: Path, original: Path) -> None:
    """Raise `UserError` at the first line with a word that fairseq keeps for itself; markup has no number."""
    for number, line in enumerate(read_clean_lines(text), start=1):
        for word in RESERVED_WORDS.intersection(line.split(" ")):
            raise UserError(f"{original}:{number}: the word {word} is reserved by fairseq; take it out")


def objection(source: list[str], target: list[str], max_length: int, max_ratio: float) -> str | None:
    """Return why a pair of train (its words) is of no use, or None if it is."""
    lengths = len(source), len(target)
    if min(lengths) == 0:
        return "empty"
    if not RESERVED_WORDS.isdisjoint(source) or not RESERVED_WORDS.isdisjoint(target):
        return "reserved word"
    if max(lengths) > max_length:
        return "too long"
    if max(lengths) > max_ratio * min(lengths):
        return "length ratio"
    return None


def clean_pairs(
    inputs: tuple[Path, Path], outputs: tuple[Path, Path], max_length: int, max_ratio: float
) -> tuple[list[bool], Counter[str]]:
    """Write the useful pairs of `inputs` to `outputs`; lengths are in words.

    Returns for each pair whether it was kept, and how many were dropped for each objection. Raises
    `UserError` if none is left.
    """
    kept: list[bool] = []
    dropped: Counter[str] = Counter()
    with open_text(outputs[0], "w") as source_output, open_text(outputs[1], "w") as target_output:
        for source, target in _pairs(inputs):
            reason = objection(source.split(), target.split(), max_length, max_ratio)
            kept.append(reason is None)
            if reason is not None:
                dropped[reason] += 1
                continue
            source_output.write(source + "\n")
            target_output.write(target + "\n")
    if not any(kept):
        reasons = ", ".join(f"{count} {reason}" for reason, count in dropped.items())
        raise UserError(f"cleaning leaves nothing of train ({reasons}); raise --max-length or --max-ratio")
    return kept, dropped


def _pairs(paths: tuple[Path, Path]) -> Iterator[tuple[str, str]]:
    return zip(read_clean_lines(paths[0]), read_clean_lines(paths[1]), strict=True)
