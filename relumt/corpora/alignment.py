"""Word alignment from attention weights and its error rate ([RL] Table 5, Fig. 4; Zenkel et al. 2019).

Shapes: H heads. Weights of subwords are merged to words first (`merge_to_words`). Each target word is linked to the
source word with the largest weight, or to none if all its weights are 0.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from relumt.errors import UserError, quote
from relumt.files import read_lines

if TYPE_CHECKING:
    from torch import Tensor  # takes seconds, also in every worker process

Links = frozenset[tuple[int, int]]
"""(source word, target word), counted from 0."""

FileLink = tuple[str, int, int]
"""("S" for sure or "P" for possible, source word, target word) with the numbers as they are in the file."""

LINK = re.compile(r"(\d{1,7})([-p?])(\d{1,7})", re.ASCII)
NUMBERED_LINK = re.compile(r"(\d{1,7})\s+(\d{1,7})\s+(\d{1,7})(?:\s+([SP]))?", re.ASCII)


@dataclass(frozen=True)
class GoldAlignment:
    """The manual alignment of a sentence pair.

    Attributes:
        sure: S, unambiguous links.
        possible: P ⊇ S, links that a prediction may contain.
    """

    sure: Links
    possible: Links

    def swap_sides(self) -> "GoldAlignment":
        """Return the alignment of the same pair translated in the other direction."""
        sure, possible = (frozenset((t, s) for s, t in links) for links in (self.sure, self.possible))
        return GoldAlignment(sure, possible)


def count_links(predicted: Links, gold: GoldAlignment) -> tuple[int, int, int, int]:
    """Return |A|, |A ∩ S|, |A ∩ P| and |S| for the predicted links A of a sentence pair; they add up over pairs."""
    return len(predicted), len(predicted & gold.sure), len(predicted & gold.possible), len(gold.sure)


def error_rate(counts: Sequence[int]) -> float:
    """Return AER = 1 − (|A∩S| + |A∩P|) / (|A| + |S|) of `count_links`; 0 if there are no predicted and sure links."""
    predicted, predicted_sure, predicted_possible, sure = counts
    return 1 - (predicted_sure + predicted_possible) / (predicted + sure) if predicted + sure else 0.0


def links_of_largest_weight(weights: "Tensor") -> list[Links]:
    """Return the links of each head for word weights [H, target words, source words]."""
    largest, source = weights.max(-1)
    return [
        frozenset((s, t) for t, (s, w) in enumerate(zip(sources, values, strict=True)) if w > 0)
        for sources, values in zip(source.tolist(), largest.tolist(), strict=True)
    ]


def format_alignment(gold: GoldAlignment) -> str:
    """Format the links of one pair, source word first: 1-2 for a sure link, 1p2 for a possible one."""
    return " ".join(f"{s}{'-' if (s, t) in gold.sure else 'p'}{t}" for s, t in sorted(gold.possible))


def read_source_first(path: Path, languages: tuple[str, str], count: int, start: int = 0) -> list[GoldAlignment]:
    """Return the gold alignments of a text of `count` pairs, source word first; see `read_alignments`.

    A file P.TGT-SRC.align was made for the opposite translation direction; all other names give the source word first.

    Raises:
        UserError: the file is invalid, or has not `count` alignments.
    """
    alignments = read_alignments(path, start, count)
    if len(alignments) != count:
        raise UserError(f"{path} has {len(alignments)} alignments, but the text has {count} pairs; fix it")
    source, target = languages
    is_target_first = path.name.removesuffix(".gz").endswith(f".{target}-{source}.align")
    return [gold.swap_sides() for gold in alignments] if is_target_first else alignments


def read_alignments(path: Path, start: int, count: int | None = None) -> list[GoldAlignment]:
    """Read gold alignments in one of two formats.

    Either one line per sentence pair with links `1-2` (sure), `1p2` or `1?2` (possible), source word first; or one line
    per link, `PAIR SOURCE TARGET S` with pairs numbered from 1, as in Blinker and .talp files; `S` may be missing.

    Args:
        path: the file.
        start: number of the first word in the file, 0 or 1.
        count: number of sentence pairs in the text, if known. The second format can omit trailing pairs without links.

    Raises:
        UserError: the file is missing or a line is in neither format; the message names the line.
    """
    lines = [line.strip() for line in read_lines(path)]
    if not any(lines):
        raise UserError(f"{path}: expected word alignments, found only empty lines")
    is_numbered = all(NUMBERED_LINK.fullmatch(line) for line in lines if line)
    pairs: list[list[FileLink]] = [[] for _ in range((count or 0) if is_numbered else len(lines))]
    for number, line in enumerate(lines, start=1):
        if match := NUMBERED_LINK.fullmatch(line) if is_numbered else None:
            pair, source, target, kind = match.groups()
            if not 1 <= int(pair) <= (count or int(pair)):
                raise UserError(f"{path}:{number}: found sentence pair {pair}, expected 1 to {count or 'the last'}")
            pairs += [[] for _ in range(int(pair) - len(pairs))]
            pairs[int(pair) - 1].append((kind or "S", int(source), int(target)))
        elif not is_numbered:
            pairs[number - 1] = _parse_links(path, number, line)
    return [_to_gold(path, number, links, start) for number, links in enumerate(pairs, start=1)]


def _parse_links(path: Path, number: int, line: str) -> list[FileLink]:
    links = []
    for token in line.split():
        if not (match := LINK.fullmatch(token)):
            problem = f"expected a link such as 1-2 (sure) or 1p2 (possible), found {quote(token)}"
            raise UserError(f"{path}:{number}: {problem}")
        links.append(("S" if match[2] == "-" else "P", int(match[1]), int(match[3])))
    return links


def _to_gold(path: Path, number: int, links: list[FileLink], start: int) -> GoldAlignment:
    """Return one pair's links counted from 0; raise UserError for a word before the first."""
    if any(min(source, target) < start for _, source, target in links):
        problem = f"links word {start - 1}, but --first-word says that words start at {start}"
        raise UserError(f"{path}: sentence pair {number} {problem}")
    possible, sure = (
        frozenset((source - start, target - start) for kind, source, target in links if kind in kinds)
        for kinds in ("SP", "S")
    )
    return GoldAlignment(sure, possible)
