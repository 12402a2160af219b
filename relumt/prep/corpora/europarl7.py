"""Europarl7 English–German in documents, with the validation and test documents of Maruf et al. 2019 ([RF] App. B).

Their training documents are available on request only. Without them, all of Europarl v7 is cut into documents where a
session opens and after every 40 lines. Pairs that recur in validation or test are removed; only letters and digits are
compared, because the spelling differs ("96 / 71" for "96/71").
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain, compress
from pathlib import Path

from relumt.atomic_output import StagingArea
from relumt.console import print_status
from relumt.data.document_lengths import lengths_after_cleaning, write_lengths
from relumt.prep.bitext import PathPair, side_paths
from relumt.prep.corpora.corpus import Corpus, copy_normalized
from relumt.prep.corpora.published_text import ParallelText, parallel_archive, parallel_files
from relumt.prep.markup import remove_markup
from relumt.text_files import read_clean_lines, write_lines

LANGUAGES = ("en", "de")
HELD_OUT = {
    "valid": parallel_files("concatenated_en2de_dev_{}.txt", LANGUAGES),
    "test": parallel_files("concatenated_en2de_test_{}.txt", LANGUAGES),
}
TRAIN = parallel_files("concatenated_en2de_train_{}.txt", LANGUAGES)
RUNNING_TEXT = parallel_archive("training-parallel-europarl-v7.tgz", "training/europarl-v7.de-en.{}", LANGUAGES)
"""Europarl v7, which does not mark documents."""

SESSION_START = "Resumption of the session"
MAX_DOCUMENT_LENGTH = 40
"""Maximum number of lines of a document that is cut out of running text."""

NEITHER_LETTER_NOR_DIGIT = re.compile(r"[\W_]+")


@dataclass(frozen=True)
class Europarl7(Corpus):
    """Documents of the European Parliament's debates.

    Attributes:
        first: number of lines of Europarl v7 to train on, None for the authors' documents or else all lines.
        bpe_merges: see Corpus.
    """

    first: int | None = None
    bpe_merges: int = 32_000
    languages = LANGUAGES
    separator = "<sep>"

    def settings(self) -> dict[str, str | int | float | bool | None]:
        """See Corpus."""
        return {} if self.first is None else {"first": self.first}

    def uses_documents(self, raw: Path) -> bool:
        """Return whether to train on the authors' documents: they are available and wanted."""
        return self.first is None and all((raw / text.source.name).is_file() for text in TRAIN)

    def published_texts(self, raw: Path) -> list[ParallelText]:
        """See Corpus."""
        return [*HELD_OUT.values(), TRAIN if self.uses_documents(raw) else RUNNING_TEXT]

    def write(self, raw: Path, stage: StagingArea) -> None:
        """See Corpus."""
        held_out_keys: set[str] = set()
        for name, texts in HELD_OUT.items():
            paths, lengths = self.read_documents(name, texts, raw, stage.scratch)
            source, target = (list(read_clean_lines(path)) for path in paths)
            held_out_keys.update(map(comparison_key, chain(source, target)))
            self.write_held_out(name, (source, target), stage.result)
            write_lengths(stage.result / f"{name}.docs", lengths)
        if self.uses_documents(raw):
            train, lengths = self.read_documents("train", TRAIN, raw, stage.scratch)
        else:
            train, lengths = self.cut_running_text(raw, held_out_keys, stage.scratch)
        outputs = side_paths(stage.result, "train", self.languages)
        kept = self.preprocess_and_clean(train, outputs, stage)
        write_lengths(stage.result / "train.docs", lengths_after_cleaning(lengths, kept))

    def read_documents(self, name: str, texts: ParallelText, raw: Path, scratch: Path) -> tuple[PathPair, list[int]]:
        """Read texts with a line <d> before each document; return the sentences and the lengths of the documents."""
        marked, plain = (side_paths(scratch, f"{name}.{kind}", self.languages) for kind in ("marked", "plain"))
        copy_normalized(texts, raw, marked)
        return plain, remove_markup("d", marked, plain, (raw / texts[0].path, raw / texts[1].path))

    def cut_running_text(self, raw: Path, held_out_keys: set[str], scratch: Path) -> tuple[PathPair, list[int]]:
        """Cut Europarl v7 into documents, without pairs that have a side whose key is in `held_out_keys`.

        Returns:
            The sentences and the lengths of the documents.
        """
        read, remaining = (side_paths(scratch, name, self.languages) for name in ("read", "remaining"))
        copy_normalized(RUNNING_TEXT, raw, read, self.first)
        lengths = cut_into_documents(read_clean_lines(read[0]))
        pairs = zip(*map(read_clean_lines, read), strict=True)
        kept = [held_out_keys.isdisjoint(map(comparison_key, pair)) for pair in pairs]
        for path, output in zip(read, remaining, strict=True):
            write_lines(output, compress(read_clean_lines(path), kept))
        print_status(f"removed {kept.count(False)} of {len(kept)} training pairs that recur in valid or test")
        return remaining, lengths_after_cleaning(lengths, kept)


def comparison_key(line: str) -> str:
    """Return what differently spelled copies of a line have in common; the line itself if that is empty."""
    return NEITHER_LETTER_NOR_DIGIT.sub("", line.casefold()) or line


def cut_into_documents(lines: Iterable[str]) -> list[int]:
    """Return document lengths for running text: one begins with a session or after MAX_DOCUMENT_LENGTH lines."""
    lengths: list[int] = []
    for line in lines:
        if not lengths or lengths[-1] == MAX_DOCUMENT_LENGTH or line == SESSION_START:
            lengths.append(0)
        lengths[-1] += 1
    return lengths
