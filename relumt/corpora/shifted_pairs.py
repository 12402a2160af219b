"""Pairs of a bitext that are shifted, because a line is missing in one place and another one was inserted elsewhere.

Long sentences have long translations: in a block of 50 pairs, the lengths of sentences correlate far more with those of
their translations than with those of the lines before or after. The opposite shows shifted pairs. In a text that is
sorted by length, or whose lines all have one length, it shows nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from relumt.corpora.bitext import PathPair
from relumt.errors import print_status
from relumt.files import read_clean_lines

BLOCK = 50
"""Number of pairs in a block; each block has half of its pairs in common with the next one."""

MAX_OFFSET = 3
"""Pairs are compared with the lines so far before and after."""

MIN_EVIDENCE = 5.0
"""Standard deviations by which the correlation must be higher at another offset. In text without shifts it is at most
4, and hardly ever above 0."""

MAX_GAP = 4 * BLOCK
"""Shifted pairs that are no farther apart are one shift."""

BLOCKS_AT_ONCE = 10_000
MAX_REPORTED = 3


@dataclass(frozen=True)
class Shift:
    """Pairs `first` to `last`, from 0, in which the translation of a line is `offset` lines further down."""

    first: int
    last: int
    offset: int


def find_shifts(source: np.ndarray, target: np.ndarray) -> list[Shift]:
    """Return the shifts, given the lengths of the lines of both sides, [N] each."""
    shifts: list[Shift] = []
    for found in _shifted_blocks(np.log1p(source), np.log1p(target)):
        if shifts and shifts[-1].offset == found.offset and found.first <= shifts[-1].last + MAX_GAP:
            shifts[-1] = replace(shifts[-1], last=found.last)
        else:
            shifts.append(found)
    return shifts


def _shifted_blocks(source: np.ndarray, target: np.ndarray) -> Iterator[Shift]:
    """Yield each block whose lengths fit better at another offset, given logarithms of lengths [N]."""
    count = len(source) - 2 * MAX_OFFSET
    if count < BLOCK:
        return
    offsets = range(-MAX_OFFSET, MAX_OFFSET + 1)
    windows = [_blocks(side) for side in (source[MAX_OFFSET : MAX_OFFSET + count], target)]
    starts = range(0, len(windows[0]), BLOCK // 2)
    for part in (starts[i : i + BLOCKS_AT_ONCE] for i in range(0, len(starts), BLOCKS_AT_ONCE)):
        first = np.array(part)
        fits = np.stack([_fit(windows[0][first], windows[1][first + MAX_OFFSET + offset]) for offset in offsets])
        evidence = (fits - fits[MAX_OFFSET]) * np.sqrt((BLOCK - 3) / 2)  # [offsets, blocks]
        for block in np.flatnonzero(evidence.max(0) > MIN_EVIDENCE):
            start = MAX_OFFSET + part[block]
            yield Shift(start, start + BLOCK - 1, offsets[evidence[:, block].argmax()])


def _blocks(lengths: np.ndarray) -> np.ndarray:
    """[N] -> [N - BLOCK + 1, BLOCK], a view."""
    return np.lib.stride_tricks.sliding_window_view(lengths, BLOCK)


def _fit(source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Return Fisher's transformation of the correlation in each block, whose variance is 1 / (BLOCK - 3) [blocks]."""
    source, target = (side - side.mean(1, keepdims=True) for side in (source, target))
    norms = np.sqrt((source**2).sum(1) * (target**2).sum(1))
    correlations = np.divide((source * target).sum(1), norms, out=np.zeros(len(norms)), where=norms > 0)
    return np.arctanh(correlations.clip(-0.999, 0.999))


def report_shifts(texts: PathPair, originals: PathPair) -> None:
    """Print where pairs of a bitext seem to be shifted; `originals` are the user's files, for the message."""
    source, target = (np.array([len(line) for line in read_clean_lines(text)]) for text in texts)
    shifts = find_shifts(source, target)
    for shift in shifts[:MAX_REPORTED]:
        print_status(
            f"{originals[1]}: sentences {shift.first + 1} to {shift.last + 1} seem to be shifted: by its length, "
            f"sentence n of {originals[0]} fits sentence n{shift.offset:+d}; look for missing or inserted lines there"
        )
    if len(shifts) > MAX_REPORTED:
        print_status(f"{originals[1]}: {len(shifts) - MAX_REPORTED} more parts seem to be shifted")
