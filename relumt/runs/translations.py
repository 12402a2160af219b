"""The translations of a subset: what fairseq-generate printed, beside their references, tokenised and plain."""

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from relumt.errors import UserError
from relumt.prep.words import tokenise
from relumt.runs.data_bin import DataBin
from relumt.runs.documents import joined

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

    def texts(self) -> Iterator[list[str]]:
        """Its four texts, in the order of its fields."""
        yield from (getattr(self, field.name) for field in fields(self))

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


def align(generated: Generated, data_bin: DataBin, subset: str, chunks: Sequence[int] | None = None) -> Translations:
    """Put every translation beside its reference and give both in both forms.

    chunks: where a translation is one of several sentences, how many each has; its reference is theirs, joined.

    The references are the data-bin's texts; one without them has only what its dictionary can spell. Text that
    was Moses-tokenised when it was binarised is detokenised, the hypotheses and, where no earlier form was kept,
    the references too; text that was not is tokenised.

    Raises:
        UserError: a sentence was left untranslated, or a reference text is missing.
    """
    output, reference = in_order(generated, data_bin, subset, chunks)
    if not data_bin.tokenized:
        return Translations(tokenise(output, data_bin.target), tokenise(reference, data_bin.target), output, reference)
    if data_bin.plain_reference:
        plain = read_references(data_bin.plain_reference_path(subset), chunks)
    else:
        plain = detokenise(reference, data_bin.target)
    return Translations(output, reference, detokenise(output, data_bin.target), plain)


def in_order(
    generated: Generated, data_bin: DataBin, subset: str, chunks: Sequence[int] | None
) -> tuple[list[str], list[str]]:
    """Hypotheses and references in the subset's order; raises UserError if any sentence lacks one."""
    hypotheses = generated.hypotheses
    if data_bin.prepared:
        references = dict(enumerate(read_references(data_bin.reference_path(subset), chunks)))
    else:
        references = generated.references
    numbers = range(max(hypotheses.keys() | references.keys(), default=0) + 1)
    missing = [number for number in numbers if number not in hypotheses or number not in references]
    if missing:
        raise UserError(
            f"{subset}: sentence {missing[0] + 1} and {len(missing) - 1} more of {len(numbers)} lack a translation or "
            "a reference; make the data-bin anew, and let fairseq-generate skip none"
        )
    return [hypotheses[number] for number in numbers], [references[number] for number in numbers]


def read_references(path: Path, chunks: Sequence[int] | None) -> list[str]:
    """The references in a file, a sentence a line, or a chunk of so many sentences each."""
    lines = read_lines(path)
    return lines if chunks is None else joined(lines, chunks)


def detokenise(lines: list[str], language: str) -> list[str]:
    """Moses tokens put together again by sacremoses, its escapes (&apos; …) undone."""
    from sacremoses import MosesDetokenizer

    detokenizer = MosesDetokenizer(lang=language)
    return [detokenizer.detokenize(line.split(" ")) for line in lines]


def read_lines(path: Path) -> list[str]:
    """The lines of a text, split at line feeds alone; raises UserError if the file is missing."""
    try:
        text = path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; a data-bin's is made by data_prep, a run's by scripts/") from None
    return text.removesuffix("\n").split("\n")
