"""Checks and cleaning of a bitext: line counts, empty lines, reserved words, sentence lengths and length ratios."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np

from relumt.console import print_status
from relumt.errors import UserError
from relumt.text_files import open_text, read_clean_lines

PathPair = tuple[Path, Path]  # source and target file

# In a text, fairseq would read these as its special symbols: an end or padding in the middle of a sentence.
RESERVED_WORDS = frozenset({"<s>", "</s>", "<pad>"})

MAX_SHARE_IN_SUBWORDS = 0.25
"""Text that BPE has split has a marker of subwords in most lines; other text hardly ever has one."""


def side_paths(folder: Path, name: str, languages: Sequence[str]) -> PathPair:
    """Return the paths `folder`/NAME.LANGUAGE of both sides of a bitext."""
    source, target = (folder / f"{name}.{language}" for language in languages)
    return source, target


def check_line_counts(names: PathPair, counts: Sequence[int], read_side: Callable[[int], Iterable[str]]) -> None:
    """Raise `UserError` if a side of a bitext is empty or the sides differ in their number of lines.

    Args:
        names: names of the two sides, for the message.
        counts: number of lines of each side.
        read_side: returns the lines of side 0 or 1, which are read again to locate the mismatch.
    """
    for name, count in zip(names, counts, strict=True):
        if count == 0:
            raise UserError(f"{name}: empty file; expected one sentence per line")
    if counts[0] != counts[1]:
        lengths = [np.fromiter(map(len, read_side(side)), dtype=np.int32) for side in (0, 1)]
        raise UserError(
            f"{names[0]} has {counts[0]} lines, {names[1]} has {counts[1]}; judging by line lengths, the first "
            f"mismatch is near line {locate_extra_lines(*lengths) + 1}. Check for a missing line break."
        )


def locate_extra_lines(first: np.ndarray, second: np.ndarray) -> int:
    """Return where the longer of two texts most likely has its extra lines, assuming they are consecutive.

    Before that line, lines of equal number correspond; from there on, the longer text is ahead by the number of extra
    lines. Among all lines, choose the one that minimizes the sum of |log length ratio| over corresponding lines.

    Args:
        first, second: number of characters of each line of the two texts.

    Returns:
        Number of the line, from 0.
    """
    longer, shorter = (np.log1p(lengths) for lengths in sorted((first, second), key=len, reverse=True))
    num_extra = len(longer) - len(shorter)
    cost_before = np.abs(longer[: len(shorter)] - shorter)
    cost_after = np.abs(longer[num_extra:] - shorter)
    # Up to a constant, the cost of choosing line i: the lines before i at cost_before, the others at cost_after.
    cost = np.concatenate([[0.0], np.cumsum(cost_before)]) - np.concatenate([[0.0], np.cumsum(cost_after)])
    return int(np.argmin(cost))


def check_no_empty_line(text: Path, original: Path) -> None:
    """Raise `UserError` at the first empty line of the normalized `text`; `original` is the user's file."""
    for number, line in enumerate(read_clean_lines(text), start=1):
        if not line:
            raise UserError(f"{original}:{number}: empty line; valid and test need a sentence on every line")


def check_not_in_subwords(text: Path, original: Path) -> None:
    """Raise `UserError` if many lines have the markers of subword-nmt or sentencepiece."""
    has_marker = ["@@ " in line or line.startswith("▁") for line in read_clean_lines(text)]
    if sum(has_marker) > MAX_SHARE_IN_SUBWORDS * len(has_marker):
        raise UserError(
            f"{original}: expected words, but {sum(has_marker)} of {len(has_marker)} lines have subwords (@@ or ▁); "
            "give the text before BPE, because relumt prepare splits words itself"
        )


def check_no_reserved_word(text: Path, original: Path) -> None:
    """Raise `UserError` at the first line with a special symbol of fairseq; lines of markup are not counted."""
    for number, line in enumerate(read_clean_lines(text), start=1):
        for word in RESERVED_WORDS.intersection(line.split(" ")):
            raise UserError(f"{original}:{number}: the word {word} is reserved by fairseq; remove it")


def check_no_reserved_subword(text: Path, original: Path) -> None:
    """Raise `UserError` if words of the segmented `text` were split into a special symbol of fairseq and the rest."""
    for line in read_clean_lines(text):
        for word in RESERVED_WORDS.intersection(line.split(" ")):
            raise UserError(
                f"{original}: {word} occurs within a word and becomes a subword of its own, which is reserved by "
                f"fairseq; remove {word} from the text"
            )


def reason_to_drop(source: list[str], target: list[str], max_length: int, max_ratio: float) -> str | None:
    """Return why a training pair (given as words) should be dropped, or None to keep it."""
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
    inputs: PathPair, outputs: PathPair, max_length: int, max_ratio: float
) -> tuple[list[bool], Counter[str]]:
    """Write the pairs of `inputs` that are fit for training to `outputs`; lengths are in words.

    Returns:
        For each pair whether it was kept, and the number of dropped pairs per reason.

    Raises:
        UserError: no pair is left.
    """
    kept: list[bool] = []
    dropped: Counter[str] = Counter()
    pairs = zip(*map(read_clean_lines, inputs), strict=True)
    with open_text(outputs[0], "w") as source_output, open_text(outputs[1], "w") as target_output:
        for source, target in pairs:
            reason = reason_to_drop(source.split(), target.split(), max_length, max_ratio)
            kept.append(reason is None)
            if reason is not None:
                dropped[reason] += 1
                continue
            source_output.write(source + "\n")
            target_output.write(target + "\n")
    reasons = ", ".join(f"{count} {reason}" for reason, count in dropped.items())
    if not any(kept):
        raise UserError(f"cleaning drops every training pair ({reasons}); raise --max-length or --max-ratio")
    print_status(f"dropped {dropped.total()} of {len(kept)} training pairs{reasons and ': '}{reasons}")
    return kept, dropped
