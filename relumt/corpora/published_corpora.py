"""The papers' corpora by name, as corpora.toml describes them, and how their texts are written.

A corpus writes the texts from which `relumt prepare` builds the data-bin: train, valid and test, tokenized, as
NAME.LANGUAGE; NAME.docs if documents are known; and the untokenized test set, for scoring, as test.raw.LANGUAGE.
"""

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from itertools import chain, compress
from pathlib import Path
from typing import Any

from relumt.corpora import bitext
from relumt.corpora.bitext import HELD_OUT, PathPair, Subsets, side_paths
from relumt.corpora.document_lengths import lengths_after_cleaning, write_lengths
from relumt.corpora.parallel import progress_step, rewrite_file
from relumt.corpora.published_files import SOURCES
from relumt.corpora.published_texts import ParallelText, PublishedText, copy_texts, is_misaligned
from relumt.corpora.record import Scalar
from relumt.corpora.tokenization import lowercase, normalize_punctuation, tokenize
from relumt.errors import print_status
from relumt.files import normalize_line, read_clean_lines, write_lines
from relumt.folders import StagingArea

NEITHER_LETTER_NOR_DIGIT = re.compile(r"[\W_]+")

Texts = Sequence[ParallelText]


@dataclass(frozen=True)
class Corpus:
    """A corpus of the papers.

    Attributes:
        languages: language codes, source first.
        train, valid, test: the texts of each split, in order.
        on_request: the training texts that are preferred to `train` if they are there.
        valid_every: which of the cleaned training pairs are used for validation (every 23rd); 0 if `valid` is.
        bpe_merges: default number of joint BPE merges.
        tokenized: whether its texts are published tokenized, so they are used as they are.
        lowercased: whether its texts are lowercased.
        punctuation_normalized: whether the source is read with normalized punctuation.
        max_length: maximum number of words of a training sentence.
        max_ratio: maximum ratio between the numbers of words of the two sides of a training pair.
        separator: a word to add to the dictionaries, for use between the sentences of a document, or None.
    """

    languages: tuple[str, str]
    train: Texts = ()
    valid: Texts = ()
    test: Texts = ()
    on_request: Texts = ()
    valid_every: int = 0
    bpe_merges: int = 32_000
    tokenized: bool = False
    lowercased: bool = False
    punctuation_normalized: bool = True
    max_length: int = 250
    max_ratio: float = 1.5
    separator: str | None = None

    def texts(self, raw: Path) -> dict[str, Texts]:
        """Return the texts of each split, given the files that are in `raw` already."""
        has_requested = all((raw / text.source.name).is_file() for pair in self.on_request for text in pair)
        train = self.on_request if self.on_request and has_requested else self.train
        return {"train": train, "valid": self.valid, "test": self.test}

    @property
    def limits(self) -> dict[str, Any]:
        """The limits for training pairs, as options of `relumt prepare`."""
        return {"max_length": self.max_length, "max_ratio": self.max_ratio}

    def settings(self) -> dict[str, Scalar]:
        """Return what was chosen about the corpus, for the record."""
        first = self.train[0][0].first
        return {} if first is None else {"first": first}

    def download(self, raw: Path) -> list[Path]:
        """Download what is missing in `raw`; return all files that the corpus is made from."""
        texts = chain.from_iterable(pair for pairs in self.texts(raw).values() for pair in pairs)
        return sorted({text.fetch(raw) for text in texts})

    def write(self, raw: Path, stage: StagingArea) -> None:
        """Write the corpus to `stage.result`; raise `UserError` if its files in `raw` are invalid."""
        texts = self.texts(raw)
        if self.tokenized:
            for split, pairs in texts.items():
                copy_texts(pairs, raw, side_paths(stage.result, split, self.languages))
            return
        held_out: list[str] = []
        for split in HELD_OUT:
            if texts[split]:
                paths = side_paths(stage.scratch, split, self.languages)
                lengths = copy_texts(texts[split], raw, paths)
                source, target = (list(read_clean_lines(path)) for path in paths)
                self.write_held_out(split, (source, target), stage.result)
                write_lengths(stage.result / f"{split}.docs", lengths)
                held_out += source + target
        self.write_train(texts["train"], held_out, raw, stage)

    def write_train(self, texts: Texts, held_out: Sequence[str], raw: Path, stage: StagingArea) -> None:
        """Write the training texts, without pairs of running text that recur in `held_out`, and split off valid."""
        read = side_paths(stage.scratch, "train", self.languages)
        lengths = copy_texts(texts, raw, read)
        form = texts[0][0].form
        if form == "running":
            read, lengths = remove_recurring(read, lengths, held_out)
        cleaned = side_paths(stage.result, "train", self.languages)
        tokenized = side_paths(stage.scratch, "tokenized", self.languages)
        with progress_step("tokenize train") as advance:
            for language, text, output in zip(self.languages, read, tokenized, strict=True):
                rewrite_file(text, output, partial(self.preprocess, language=language), advance)
        kept, _ = bitext.clean_pairs(tokenized, cleaned, self.max_length, self.max_ratio)
        if self.valid_every:
            kept = split_off_valid(read, cleaned, kept, self.valid_every)
        if form != "plain":
            write_lengths(stage.result / "train.docs", lengths_after_cleaning(lengths, kept))

    def preprocess(self, lines: list[str], language: str, is_reference: bool = False) -> list[str]:
        """Rewrite lines as the model is to read them; references, which output is scored against, keep punctuation."""
        if self.punctuation_normalized and not is_reference:
            lines = normalize_punctuation(lines, language)
        lines = tokenize(lines, language)
        return lowercase(lines) if self.lowercased else lines

    def write_held_out(self, name: str, sides: tuple[list[str], list[str]], folder: Path) -> None:
        """Write valid or test, untokenized and tokenized."""
        raw_paths, paths = (side_paths(folder, prefix, self.languages) for prefix in (f"{name}.raw", name))
        for side, language in enumerate(self.languages):
            lines = list(map(normalize_line, sides[side]))
            write_lines(raw_paths[side], lines)
            write_lines(paths[side], self.preprocess(lines, language, is_reference=side == 1))


def remove_recurring(texts: PathPair, lengths: Sequence[int], held_out: Sequence[str]) -> tuple[PathPair, list[int]]:
    """Write the pairs of `texts` with no side in `held_out` to other files; return those, and the documents' lengths.

    Only letters and digits are compared, because the spelling differs ("96 / 71" for "96/71").
    """
    keys = set(map(comparison_key, held_out))
    kept = [keys.isdisjoint(map(comparison_key, pair)) for pair in zip(*map(read_clean_lines, texts), strict=True)]
    source, target = (path.with_name(f"remaining{path.suffix}") for path in texts)
    for path, output in zip(texts, (source, target), strict=True):
        write_lines(output, compress(read_clean_lines(path), kept))
    print_status(f"removed {kept.count(False)} of {len(kept)} training pairs that recur in valid or test")
    return (source, target), lengths_after_cleaning(lengths, kept)


def comparison_key(line: str) -> str:
    """Return what differently spelled copies of a line have in common; the line itself if that is empty."""
    return NEITHER_LETTER_NOR_DIGIT.sub("", line.casefold()) or line


def split_off_valid(read: PathPair, cleaned: PathPair, kept: list[bool], every: int) -> list[bool]:
    """Move every N-th of the cleaned training pairs to valid, in the same folder.

    Args:
        read: the files before preprocessing.
        cleaned: the preprocessed pairs that were kept.
        kept: for each pair of `read` whether it was kept.
        every: N.

    Returns:
        For each pair of `read` whether it is in train.
    """
    valid_numbers = set([number for number, is_kept in enumerate(kept) if is_kept][every - 1 :: every])
    for read_path, path in zip(read, cleaned, strict=True):
        lines = list(read_clean_lines(path))
        write_lines(path.with_name(f"valid{path.suffix}"), lines[every - 1 :: every])
        del lines[every - 1 :: every]
        write_lines(path, lines)
        untokenized = (line for number, line in enumerate(read_clean_lines(read_path)) if number in valid_numbers)
        write_lines(path.with_name(f"valid.raw{path.suffix}"), untokenized)
    return [is_kept and number not in valid_numbers for number, is_kept in enumerate(kept)]


TEDX = "TEDX.dev2012"


@dataclass(frozen=True)
class Iwslt14(Corpus):
    """IWSLT14 German–English, prepared as in fairseq's recipe, which most papers use.

    The training talks are tokenized, cleaned (at most 175 words per side, neither side more than 1.5 times as long as
    the other) and lowercased. Every 23rd pair is used for validation. The test set consists of dev2010, TEDX.dev2012
    and tst2010 to tst2012: 6,750 pairs. [RF] lists the same sets without TEDX.dev2012: 5,585 pairs.
    """

    def write(self, raw: Path, stage: StagingArea) -> None:
        """See Corpus; the test set describes its subsets."""
        super().write(raw, stage)
        bitext.write_subsets(stage.result / "test.subsets.json", self.subsets(raw))

    def subsets(self, raw: Path) -> Subsets:
        """Return the smaller test sets that are subsets of this one."""
        lines = enumerate((text, segment) for text, _ in self.test for segment in text.segments(raw))
        tedx = {number: segment for number, (text, segment) in lines if TEDX in text.member}
        misaligned = [number for number, segment in tedx.items() if is_misaligned(segment)]
        return {"without TEDX.dev2012, as [RF]": list(tedx), "without 72 misaligned pairs": misaligned}


def parse_corpus(kind: type[Corpus], languages: Sequence[str], **fields: Any) -> Corpus:
    """Return the corpus that a table of corpora.toml describes."""

    def parse_text(text: dict[str, Any]) -> ParallelText:
        name, members = text.pop("source"), text.pop("members", [text.pop("member", "")] * 2)
        sides = zip(text.pop("languages", languages), members, text.pop("columns", (0, 1)), strict=True)
        first, second = (
            PublishedText(SOURCES[name.format(language)], member.format(language), column=column, **text)
            for language, member, column in sides
        )
        return first, second

    texts = {key: list(map(parse_text, value)) for key, value in fields.items() if isinstance(value, list)}
    source, target = languages
    return kind((source, target), **fields | texts)


CORPORA = {
    name: parse_corpus(Iwslt14 if name == "iwslt14_de_en" else Corpus, **fields)
    for name, fields in tomllib.loads((files(__package__) / "corpora.toml").read_text(encoding="utf-8")).items()
}
"""All corpora by name, which is also that of the script in data_prep/ and of the data-bin."""
