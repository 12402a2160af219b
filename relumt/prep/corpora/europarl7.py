"""Europarl7 English–German in documents, with the validation and test documents of Maruf et al. 2019, as [RF] App. B.

Their training documents have to be asked for. Without them all of Europarl v7 is cut into documents where a session
opens and after every 40 lines, and stripped of the lines that recur in validation and test, whose spelling is another
("96 / 71" for "96/71"): letters and digits alone are compared.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain, compress, islice
from pathlib import Path

from relumt.data.document_lengths import lengths_after_cleaning, write_lengths
from relumt.prep.bitext import check_line_counts
from relumt.prep.corpora.corpus import (
    Corpus,
    Pair,
    copy_normalised,
    each,
    rewrites_of_train,
    tokenise_and_clean,
    write_held_out,
)
from relumt.prep.corpora.download import Source, fetch
from relumt.prep.corpora.packed import member_lines, unpacked
from relumt.prep.corpora.sources import EUROPARL_V7
from relumt.prep.markup import take_out
from relumt.prep.progress import Steps
from relumt.text_files import read_clean_lines, write_lines

DOCUMENTS = (
    "https://raw.githubusercontent.com/sameenmaruf/selective-attn/b30c31c8b1014f9cb1ec190658fc2369a6fd015c/"
    "data/Europarl7/{}"
)
TRAIN = "concatenated_en2de_train_{}.txt"
HELD_OUT = {"valid": "concatenated_en2de_dev_{}.txt", "test": "concatenated_en2de_test_{}.txt"}
CHECKSUMS = {
    ("valid", "en"): "sha256:938fde3fccaace0e221e2520dcb11d9b121ca3740308a4c7940692c96955b011",
    ("valid", "de"): "sha256:d75378d8f8482c4276e3c77be8f8c48e5577c064c05481b1a05cff1db5c5b0aa",
    ("test", "en"): "sha256:a82dd0099a1a786b9af99eeb2444bf0ad935d0a534cd883c5d560980fd07859c",
    ("test", "de"): "sha256:60bd6552032d82bfd0fb9597bad8aec4f6cf333918cb56a5cf215003d983850a",
}

RUNNING = "training/europarl-v7.de-en.{}"
"""Path of Europarl v7 in its archive; it says nothing of documents."""

NEITHER_LETTER_NOR_DIGIT = re.compile(r"[\W_]+")

OPENING = "Resumption of the session"
AT_MOST = 40
"""Lines of a document cut out of running text."""


@dataclass(frozen=True)
class Europarl7(Corpus):
    """Documents of the European Parliament's debates.

    Attributes:
        first: lines of Europarl v7 to train on where the authors' documents are not there, None for all.
        merges: see Corpus.
    """

    first: int | None = None
    merges: int = 32_000
    languages = ("en", "de")
    separator = "<sep>"

    def switches(self) -> dict[str, object]:
        """See Corpus."""
        return {} if self.first is None else {"first": self.first}

    def files(self, raw: Path, steps: Steps) -> list[Path]:
        """See Corpus."""
        held_out = [
            Source(name, (DOCUMENTS.format(name),), CHECKSUMS[split, language])
            for split, pattern in HELD_OUT.items()
            for language in self.languages
            for name in [pattern.format(language)]
        ]
        found = [fetch(source, raw, steps) for source in held_out]
        if self.has_documents(raw):
            return found + [raw / TRAIN.format(language) for language in self.languages]
        running = [unpacked(raw, RUNNING.format(language)) for language in self.languages]
        if (raw / EUROPARL_V7.name).is_file() or not all(running):
            return [*found, fetch(EUROPARL_V7, raw, steps)]
        return found + [path for paths in running for path in paths]

    def has_documents(self, raw: Path) -> bool:
        """Whether the authors' training documents are there and wanted."""
        return self.first is None and all((raw / TRAIN.format(language)).is_file() for language in self.languages)

    def write(self, raw: Path, folder: Path, scratch: Path, steps: Steps) -> None:
        """See Corpus."""
        held_out = set()
        for name, pattern in HELD_OUT.items():
            sides, lengths = self.documents(pattern, raw, scratch)
            texts = [list(read_clean_lines(path)) for path in sides]
            held_out.update(map(key, chain(*texts)))
            write_held_out(name, (texts[0], texts[1]), self.languages, folder)
            write_lengths(folder / f"{name}.docs", lengths)
        if self.has_documents(raw):
            sides, lengths = self.documents(TRAIN, raw, scratch)
        else:
            sides, lengths = self.running_text(raw, held_out, scratch, steps)
        cleaned, kept = tokenise_and_clean(sides, rewrites_of_train(self.languages), self, scratch, steps)
        for path, place in zip(cleaned, each(folder, "train", self.languages), strict=True):
            path.rename(place)
        write_lengths(folder / "train.docs", lengths_after_cleaning(lengths, kept))

    def documents(self, pattern: str, raw: Path, scratch: Path) -> tuple[Pair, list[int]]:
        """The sides of a text with a line <d> before each document, without these, and the documents' lengths."""
        originals = [raw / pattern.format(language) for language in self.languages]
        marked, plain = each(scratch, f"{pattern}.marked", self.languages), each(scratch, pattern, self.languages)
        counts = [
            copy_normalised(member_lines(raw, path.name, ""), to) for path, to in zip(originals, marked, strict=True)
        ]
        check_line_counts((originals[0], originals[1]), counts, lambda side: read_clean_lines(marked[side]))
        _, lengths = take_out("d", marked, plain, (originals[0], originals[1]))
        return plain, lengths

    def running_text(self, raw: Path, held_out: set[str], scratch: Path, steps: Steps) -> tuple[Pair, list[int]]:
        """The sides of Europarl v7 less every pair of which `held_out` has the `key` of a side; and their documents."""
        read, kept_lines = each(scratch, "read", self.languages), each(scratch, "kept", self.languages)
        counts = []
        for path, member in zip(read, map(RUNNING.format, self.languages), strict=True):
            with steps.step(f"read {member}") as advance:
                lines = islice(member_lines(raw, EUROPARL_V7.name, member), self.first)
                counts.append(copy_normalised(lines, path, advance))
        check_line_counts(read, counts, lambda side: read_clean_lines(read[side]))
        lengths = cut(read_clean_lines(read[0]))
        stays = [held_out.isdisjoint(map(key, pair)) for pair in zip(*map(read_clean_lines, read), strict=True)]
        for path, kept in zip(read, kept_lines, strict=True):
            write_lines(kept, compress(read_clean_lines(path), stays))
        steps.say(f"left out {stays.count(False)} of {len(stays)} pairs of train that recur in valid or test")
        return kept_lines, lengths_after_cleaning(lengths, stays)


def key(line: str) -> str:
    """What two spellings of a line have in common; the line itself where that is nothing."""
    return NEITHER_LETTER_NOR_DIGIT.sub("", line.casefold()) or line


def cut(lines: Iterable[str]) -> list[int]:
    """Lengths of the documents made of running text: one begins with a session and after every so many lines."""
    lengths: list[int] = []
    for line in lines:
        if not lengths or lengths[-1] == AT_MOST or line == OPENING:
            lengths.append(0)
        lengths[-1] += 1
    return lengths
