"""Word alignment from attention weights and its error rate ([RL] Table 5, Fig. 4; Zenkel et al. 2019).

Shapes: H heads. Weights of subwords are merged to words first (`merge_to_words`). Each target word is linked to the
source word with the largest weight, or to none if all its weights are 0.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from relumt.errors import UserError, quote
from relumt.files import read_lines

if TYPE_CHECKING:
    from torch import Tensor  # takes seconds, also in every worker process

Links = frozenset[tuple[int, int]]
"""(source word, target word), counted from 0."""

LINK = re.compile(r"(\d{1,7})([-p?])(\d{1,7})", re.ASCII)
NUMBERED_LINK = re.compile(r"(\d{1,7})\s+(\d{1,7})\s+(\d{1,7})(?:\s+([SP]))?", re.ASCII)

SURE = ("-", "S", None)
"""Kinds of links in files that are sure."""


Unit = Literal["subwords", "words"]
"""What alignments and attention maps are between."""


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
    pairs: list[dict[tuple[int, int], bool]]  # for each link whether it is sure
    pairs = [{} for _ in range((count or 0) if is_numbered else len(lines))]
    for number, line in enumerate(lines, start=1):
        for text in filter(None, [line] if is_numbered else line.split()):
            pair, source, kind, target = _parse_link(f"{path}:{number}", number, text, is_numbered)
            if not 1 <= pair <= (count or pair):
                raise UserError(f"{path}:{number}: found sentence pair {pair}, expected 1 to {count or 'the last'}")
            if min(source, target) < start:
                problem = f"links word {start - 1}, but --first-word says that words start at {start}"
                raise UserError(f"{path}: sentence pair {pair} {problem}")
            pairs += [{} for _ in range(pair - len(pairs))]
            link = source - start, target - start
            pairs[pair - 1][link] = pairs[pair - 1].get(link, False) or kind in SURE
    return [GoldAlignment(frozenset(link for link in own if own[link]), frozenset(own)) for own in pairs]


def have_no_first_word(alignments: Iterable[GoldAlignment]) -> bool:
    """Whether no link has word 0 on either side: the words of the file may be counted from 1."""
    return all(min(link) > 0 for gold in alignments for link in gold.possible)


def _parse_link(where: str, number: int, text: str, is_numbered: bool) -> tuple[int, int, str | None, int]:
    """Return the pair, the source word, the kind and the target word of a link on line `number`."""
    if is_numbered and (match := NUMBERED_LINK.fullmatch(text)):
        return int(match[1]), int(match[2]), match[4], int(match[3])
    if match := LINK.fullmatch(text):
        return number, int(match[1]), match[2], int(match[3])
    problem = f"expected a link such as 1-2 (sure) or 1p2 (possible), found {quote(text)}"
    raise UserError(f"{where}: {problem}")
