"""Word alignment out of attention ([RL] Table 5, Fig. 4; Zenkel et al. 2019). Shapes: H heads, T target, S source.

Weights of subwords become those of words: summed over the subwords of a source word, averaged over those of a target
word. Each target word is linked to the source word with the largest weight, or to none if all its weights are 0.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from relumt.errors import UserError
from relumt.text_files import read_lines

Links = frozenset[tuple[int, int]]  # (source word, target word), from 0
Link = tuple[str, int, int]  # kind, source word, target word, as a file has them

TOKEN = re.compile(r"(\d+)([-p?])(\d+)")
NUMBERED = re.compile(r"(\d+)\s+(\d+)\s+(\d+)(?:\s+([SP]))?")


@dataclass(frozen=True)
class Gold:
    """The alignment of a sentence pair by hand.

    Attributes:
        sure: S, the links that must be there.
        possible: P ⊇ S, those that may be.
    """

    sure: Links
    possible: Links

    def turned(self) -> "Gold":
        """Of the same pair, translated the other way."""
        sure, possible = (frozenset((t, s) for s, t in links) for links in (self.sure, self.possible))
        return Gold(sure, possible)


@dataclass(frozen=True)
class Agreement:
    """Counts of a predicted alignment A against a gold one, which add up over sentences."""

    links: int = 0
    in_sure: int = 0
    in_possible: int = 0
    sure: int = 0

    @classmethod
    def of(cls, found: Links, gold: Gold) -> "Agreement":
        """Of one sentence pair."""
        return cls(len(found), len(found & gold.sure), len(found & gold.possible), len(gold.sure))

    def __add__(self, other: "Agreement") -> "Agreement":
        return Agreement(
            self.links + other.links,
            self.in_sure + other.in_sure,
            self.in_possible + other.in_possible,
            self.sure + other.sure,
        )

    @property
    def error_rate(self) -> float:
        """AER = 1 − (|A∩S| + |A∩P|) / (|A| + |S|); 0 where there is nothing to find and nothing was found."""
        total = self.links + self.sure
        return 1 - (self.in_sure + self.in_possible) / total if total else 0.0


def word_numbers(symbols: Sequence[str], subwords: str) -> list[int]:
    """The word that each subword is of, from 0.

    Args:
        symbols: of a sentence, without its end.
        subwords: kind of segmentation: "subword-nmt" (a piece that a word goes on after ends in @@), "sentencepiece" (a
            piece that begins a word starts with ▁) or "none".
    """
    if subwords == "subword-nmt":
        begins = [True, *(not symbol.endswith("@@") for symbol in symbols[:-1])]
    elif subwords == "sentencepiece":
        begins = [number == 0 or symbol.startswith("▁") for number, symbol in enumerate(symbols)]
    else:
        begins = [True] * len(symbols)
    numbers, word = [], -1
    for begin in begins[: len(symbols)]:
        word += begin
        numbers.append(word)
    return numbers


def of_words(weights: Tensor, target_words: Sequence[int], source_words: Sequence[int]) -> Tensor:
    """Weights of subwords, [H, T, S], as weights of words, [H, words of T, words of S]."""
    to_target, to_source = (_membership(words).to(weights) for words in (target_words, source_words))
    return (to_target / to_target.sum(1, keepdim=True)) @ weights @ to_source.T


def _membership(words: Sequence[int]) -> Tensor:
    """[words, subwords]: 1 where a subword is of a word."""
    numbers = torch.tensor(words)
    return numbers == torch.arange(int(numbers.max()) + 1)[:, None]


def best_links(weights: Tensor) -> list[Links]:
    """The alignment that each head's weights, [H, target words, source words], give."""
    largest, source = weights.max(-1)
    return [
        frozenset((s, t) for t, (s, w) in enumerate(zip(sources, values, strict=True)) if w > 0)
        for sources, values in zip(source.tolist(), largest.tolist(), strict=True)
    ]


def read_alignments(path: Path, start: int, count: int | None = None) -> list[Gold]:
    """Alignments by hand, a sentence pair a line of `1-2` (sure), `1p2` or `1?2` (possible), or lines `pair 1 2 S`.

    The second form (Blinker's, the .talp files of some sets) numbers the pairs from 1, and may leave S out.

    Args:
        path: the file.
        start: number of the first word, 0 or 1.
        count: of the text's pairs, where it is known: numbered lines name none beyond, and may leave out the last ones,
            which have no links then.

    Raises:
        UserError: no such file, or a line that is neither; it names the line.
    """
    lines = [line.strip() for line in read_lines(path)]
    if not any(lines):
        raise UserError(f"{path}: no alignment in it")
    if all(NUMBERED.fullmatch(line) for line in lines if line):
        pairs = _numbered(path, lines, count)
    else:
        pairs = [_links(path, number, line) for number, line in enumerate(lines, start=1)]
    return [_gold(path, number, links, start) for number, links in enumerate(pairs, start=1)]


def _numbered(path: Path, lines: Sequence[str], count: int | None) -> list[list[Link]]:
    """Each pair's links, of lines `pair 1 2 S`; raises UserError for a pair that cannot be."""
    pairs: list[list[Link]] = [[] for _ in range(count or 0)]
    for number, line in enumerate(lines, start=1):
        if not line:
            continue
        pair, source, target, kind = NUMBERED.fullmatch(line).groups()
        if int(pair) < 1:
            raise UserError(f"{path}:{number}: pair {pair}, but pairs are numbered from 1")
        if count is not None and int(pair) > count:
            raise UserError(f"{path}:{number}: pair {pair}, but there are {count}")
        pairs += [[] for _ in range(int(pair) - len(pairs))]
        pairs[int(pair) - 1].append((kind or "S", int(source), int(target)))
    return pairs


def _links(path: Path, number: int, line: str) -> list[Link]:
    """The links of a line `1-2 3p4`; raises UserError for anything else in it."""
    links = []
    for token in line.split():
        match = TOKEN.fullmatch(token)
        if not match:
            raise UserError(f"{path}:{number}: {token!r} is no link; write 1-2, or 1p2 for a possible one")
        source, kind, target = match.groups()
        links.append(("S" if kind == "-" else "P", int(source), int(target)))
    return links


def _gold(path: Path, number: int, links: list[Link], start: int) -> Gold:
    """One pair's links, counted from 0; raises UserError for one before the first word."""
    if any(min(source, target) < start for _, source, target in links):
        raise UserError(
            f"{path}: pair {number} has a word {start - 1}, but words were said to be numbered from {start}"
        )
    placed = [(kind, (source - start, target - start)) for kind, source, target in links]
    return Gold(frozenset(link for kind, link in placed if kind == "S"), frozenset(link for _, link in placed))
