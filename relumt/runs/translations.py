"""The translations of a subset: what fairseq-generate printed, beside their references, tokenised and plain."""

import hashlib
import re
from collections.abc import Collection
from dataclasses import dataclass
from itertools import compress
from pathlib import Path

from relumt.errors import UserError
from relumt.prep.tokenization import detokenize, tokenize
from relumt.runs.data_bin import DataBin

LINE = re.compile(r"([DT])-(\d+)\t(.*)")
END = "Generate "
SPEED = re.compile(r"Translated [\d,]+ sentences .*, ([\d.]+) tokens/s\)")


@dataclass(frozen=True)
class Generated:
    """What fairseq-generate wrote, by the sentence's number in the subset, from 0.

    Attributes:
        hypotheses: best translation of each, without subwords.
        references: reference of each as the dictionary spells it, unknown words as <<unk>>.
    """

    hypotheses: dict[int, str]
    references: dict[int, str]


@dataclass(frozen=True)
class Translations:
    """Hypotheses and references of one subset, line by line, both ways.

    Attributes:
        tokenised_hypotheses, tokenised_references: Moses tokens.
        hypotheses, references: detokenised text.
    """

    tokenised_hypotheses: list[str]
    tokenised_references: list[str]
    hypotheses: list[str]
    references: list[str]

    def without(self, left_out: Collection[int]) -> "Translations":
        """The same but for the lines of these numbers, from 0."""
        stays = [line not in left_out for line in range(len(self.hypotheses))]
        columns = (self.tokenised_hypotheses, self.tokenised_references, self.hypotheses, self.references)
        return Translations(*(list(compress(lines, stays)) for lines in columns))

    def references_sha256(self) -> str:
        """What tells one test set from another, over both forms of the references."""
        return hashlib.sha256("\n".join(self.tokenised_references + self.references).encode()).hexdigest()


def read_generated(path: Path) -> Generated:
    """Read the output of fairseq-generate; of several hypotheses a sentence the first, which is the best, counts.

    Raises:
        UserError: there is none, or it breaks off.
    """
    found: dict[str, dict[int, str]] = {"D": {}, "T": {}}
    lines = read_lines(path)
    for line in lines:
        if match := LINE.match(line):
            kind, number, rest = match.groups()
            text = rest.partition("\t")[2] if kind == "D" else rest
            found[kind].setdefault(int(number), text)
    if not lines[-1].startswith(END):
        raise UserError(f"{path}: breaks off; fairseq-generate failed, run scripts/evaluate.sh again")
    return Generated(found["D"], found["T"])


def read_speed(*paths: Path) -> float | None:
    """Tokens a second of beam search, from whichever of the files fairseq logged it to; None if in none."""
    for path in paths:
        for line in read_lines(path):
            if match := SPEED.search(line):
                return float(match[1])
    return None


def align(generated: Generated, data_bin: DataBin, subset: str) -> Translations:
    """Put every translation beside its reference and give both in both forms.

    The references are the data-bin's texts; one without them has only what its dictionary can spell.

    Raises:
        UserError: a sentence was left untranslated, or a reference text is missing.
    """
    tokenised, plain = references_of(generated, data_bin, subset)
    hypotheses = in_order(generated.hypotheses, len(tokenised), subset)
    tokenised_hypotheses, plain_hypotheses = both_forms(hypotheses, data_bin)
    return Translations(tokenised_hypotheses, tokenised, plain_hypotheses, plain)


def both_forms(lines: list[str], data_bin: DataBin) -> tuple[list[str], list[str]]:
    """Lines as the data-bin has them, tokenised and plain: Moses' tokens are put together, plain text is split."""
    if data_bin.tokenized:
        return lines, detokenize(lines, data_bin.target)
    return tokenize(lines, data_bin.target), lines


def references_of(generated: Generated, data_bin: DataBin, subset: str) -> tuple[list[str], list[str]]:
    """The references, tokenised and as they came; raises UserError if one is missing."""
    if not data_bin.prepared:
        count = max(generated.hypotheses.keys() | generated.references.keys(), default=0) + 1
        return both_forms(in_order(generated.references, count, subset), data_bin)
    lines = read_lines(data_bin.reference_path(subset))
    tokenised, plain = both_forms(lines, data_bin)
    return tokenised, read_lines(data_bin.plain_reference_path(subset)) if data_bin.plain_reference else plain


def in_order(found: dict[int, str], count: int, subset: str) -> list[str]:
    """The lines by number; raises UserError unless there are as many as `count`."""
    missing = sorted(found.keys() ^ set(range(count)))
    if missing:
        raise UserError(
            f"{subset}: sentence {missing[0] + 1} and {len(missing) - 1} more of {count} lack a translation or "
            "a reference; make the data-bin anew, and let fairseq-generate skip none"
        )
    return [found[number] for number in range(count)]


def read_lines(path: Path) -> list[str]:
    """The lines of a text, split at line feeds alone; raises UserError if the file is missing."""
    try:
        text = path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; a data-bin's is made by data_prep, a run's by scripts/") from None
    return text.removesuffix("\n").split("\n")
