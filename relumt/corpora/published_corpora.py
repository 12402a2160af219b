"""The papers' corpora by name, and how their texts are written from the published files.

A corpus writes the texts from which `relumt prepare` builds the data-bin: train, valid and test, tokenized, as
NAME.LANGUAGE; NAME.docs if documents are known; and the untokenized test set, for scoring, as test.raw.LANGUAGE.
"""

import re
import tomllib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from importlib.resources import files
from itertools import chain, compress, islice
from pathlib import Path
from typing import Any, NamedTuple

from sacrebleu.dataset import DATASETS

from relumt.console import print_status
from relumt.corpora import bitext
from relumt.corpora.bitext import PathPair, Subsets, check_line_counts, side_paths
from relumt.corpora.document_lengths import lengths_after_cleaning, write_lengths
from relumt.corpora.parallel import rewrite_file
from relumt.corpora.prepare import Scalar, progress_step
from relumt.corpora.published_files import SOURCES, ParallelText, PublishedText, Source, published_pair
from relumt.corpora.tokenization import lowercase, normalize_punctuation, tokenize
from relumt.errors import UserError
from relumt.files import StagingArea
from relumt.text_files import normalize_line, open_text, read_clean_lines, write_lines

DOCUMENT = re.compile(r'<doc\b[^>]*\bdocid="([^"]*)"', re.IGNORECASE)
SEGMENT_START = re.compile(r"<seg\b", re.IGNORECASE)
SEGMENT = re.compile(r'<seg id="(\d+)">\s*(.*?)\s*</seg>', re.IGNORECASE)


class Corpus(ABC):
    """A corpus of the papers.

    Attributes:
        languages: language codes, source first.
        bpe_merges: default number of joint BPE merges.
        lowercased: whether its texts are lowercased.
        punctuation_normalized: whether the source is read with normalized punctuation.
        max_length: maximum number of words of a training sentence.
        max_ratio: maximum ratio between the numbers of words of the two sides of a training pair.
        separator: a word to add to the dictionaries, for use between the sentences of a document, or None.
    """

    languages: tuple[str, str]
    bpe_merges: int
    lowercased: bool = False
    punctuation_normalized: bool = True
    max_length: int = 250
    max_ratio: float = 1.5
    separator: str | None = None

    @abstractmethod
    def published_texts(self, raw: Path) -> Iterable[ParallelText]:
        """Return every text that the corpus is made from, given the files that are in `raw` already."""

    @abstractmethod
    def write(self, raw: Path, stage: StagingArea) -> None:
        """Write the corpus to `stage.result`; raise `UserError` if its files in `raw` are invalid."""

    def settings(self) -> dict[str, Scalar]:
        """Return what the user chose about the corpus, for the record."""
        return {}

    def download(self, raw: Path) -> list[Path]:
        """Download what is missing in `raw`; return all files that the corpus is made from."""
        texts = [text for pair in self.published_texts(raw) for text in pair]
        return sorted({path for text in texts for path in text.fetch(raw)})

    @staticmethod
    def preprocess(lines: list[str], language: str) -> list[str]:
        """Rewrite lines as the model is to read them: here with normalized punctuation and tokenized."""
        return tokenize(normalize_punctuation(lines, language), language)

    def preprocess_and_clean(self, texts: PathPair, outputs: PathPair, stage: StagingArea) -> list[bool]:
        """Preprocess the training texts and drop unfit pairs; return for each pair whether it was kept."""
        tokenized = side_paths(stage.scratch, "tokenized", self.languages)
        with progress_step("tokenize train") as advance:
            for language, text, output in zip(self.languages, texts, tokenized, strict=True):
                rewrite_file(text, output, partial(self.preprocess, language=language), advance)
        return bitext.clean_pairs(tokenized, outputs, self.max_length, self.max_ratio)[0]

    def write_held_out(self, name: str, sides: tuple[list[str], list[str]], folder: Path) -> None:
        """Write valid or test, untokenized and tokenized.

        The source is preprocessed as in training. The target, which output is scored against, keeps its punctuation.
        """
        source, target = ([normalize_line(line) for line in lines] for lines in sides)
        for path, lines in zip(side_paths(folder, f"{name}.raw", self.languages), (source, target), strict=True):
            write_lines(path, lines)
        source_path, target_path = side_paths(folder, name, self.languages)
        write_lines(source_path, self.preprocess(source, self.languages[0]))
        write_lines(target_path, tokenize(target, self.languages[1]))


def copy_normalized(texts: ParallelText, raw: Path, outputs: PathPair, limit: int | None = None) -> None:
    """Append the normalized lines of a parallel text, at most `limit` per side, to the files `outputs`.

    Raises:
        UserError: a side is empty, or the sides differ in their number of lines.
    """
    counts = [0, 0]
    with progress_step(f"read {texts[0].path}") as advance:
        for side, (text, output) in enumerate(zip(texts, outputs, strict=True)):
            with open_text(output, "a") as file:
                for counts[side], line in enumerate(islice(text.lines(raw), limit), start=1):
                    file.write(normalize_line(line.removesuffix("\n")) + "\n")
                    advance(1)
    check_line_counts((texts[0].path, texts[1].path), counts, lambda side: islice(texts[side].lines(raw), limit))


class Segment(NamedTuple):
    """A sentence of an evaluation set: the identifier of its document, its number there, and its text."""

    document: str
    number: int
    text: str


def parse_segments(text: PublishedText, raw: Path) -> list[Segment]:
    """Return the segments of an evaluation set of IWSLT or WMT: SGML or XML with documents (talks, articles).

    Raises:
        UserError: it has none, or not one per line.
    """
    segments, document = [], ""
    for number, line in enumerate(text.lines(raw), start=1):
        if match := DOCUMENT.search(line):
            document = match[1]
        found = SEGMENT.findall(line)
        if len(found) > 1 or len(SEGMENT_START.findall(line)) != len(found):
            raise UserError(f'{text.path}:{number}: expected at most one segment in a line, <seg id="NUMBER">…</seg>')
        segments += [Segment(document, int(identifier), sentence) for identifier, sentence in found]
    if not segments:
        raise UserError(f"{text.path}: found no <seg id=…>; expected an evaluation set of IWSLT or WMT")
    return segments


def document_lengths(segments: Sequence[Segment]) -> list[int]:
    """Return the number of segments of each document. Where segments were left out, a new document begins."""
    lengths: list[int] = []
    follower: tuple[str, int] | None = None
    for segment in segments:
        if (segment.document, segment.number) != follower:
            lengths.append(0)
        lengths[-1] += 1
        follower = segment.document, segment.number + 1
    return lengths


class Multi30k(Corpus):
    """Captions of 29,000 images, published in tokenized and lowercased form, tested on test_2016_flickr.

    Small enough to train on a CPU: the preset `small` uses it in place of the papers' corpora.
    """

    languages = ("de", "en")
    bpe_merges = 8_000
    lowercased = True
    max_ratio = 9.0
    texts = {  # noqa: RUF012
        split: published_pair(f"{name}.lc.norm.tok.{{}}", ("de", "en"))
        for split, name in (("train", "train"), ("valid", "val"), ("test", "test_2016_flickr"))
    }

    def published_texts(self, raw: Path) -> Iterable[ParallelText]:
        """See Corpus."""
        return self.texts.values()

    def write(self, raw: Path, stage: StagingArea) -> None:
        """See Corpus."""
        for split, texts in self.texts.items():
            copy_normalized(texts, raw, side_paths(stage.result, split, self.languages))


@dataclass(frozen=True)
class Wmt(Corpus):
    """A language pair of one year of WMT's news translation task; wmt.toml lists them.

    Validation uses the test set of the year before ([RL] §5, [RF] A.2); the test sets are sacreBLEU's.

    Attributes:
        languages: language codes, source first.
        train: the training texts, in order.
        valid, test: sacreBLEU's names of the evaluation sets ("wmt14/full").
        max_ratio: see Corpus; larger if one language is written without spaces.
        bpe_merges: see Corpus.
    """

    languages: tuple[str, str]
    train: tuple[ParallelText, ...]
    valid: str
    test: str
    max_ratio: float = 1.5
    bpe_merges: int = 32_000

    def published_texts(self, raw: Path) -> list[ParallelText]:
        """See Corpus."""
        return [*self.train, self.evaluation_set(self.valid), self.evaluation_set(self.test)]

    def evaluation_set(self, name: str) -> ParallelText:
        """Return sacreBLEU's evaluation set of that name."""
        dataset = DATASETS[name]
        assert dataset.data and dataset.md5, "sacreBLEU has the URLs and checksums of WMT's sets"
        archive = Source(f"{name.replace('/', '-')}.tgz", tuple(dataset.data), f"md5:{dataset.md5[0]}")
        source, target = dataset.langpairs["-".join(self.languages)]
        return PublishedText(archive, source), PublishedText(archive, target)

    def write(self, raw: Path, stage: StagingArea) -> None:
        """See Corpus."""
        for name, texts in (("valid", self.evaluation_set(self.valid)), ("test", self.evaluation_set(self.test))):
            source, target = (parse_segments(text, raw) for text in texts)
            sides = [segment.text for segment in source], [segment.text for segment in target]
            check_line_counts((texts[0].path, texts[1].path), list(map(len, sides)), sides.__getitem__)
            self.write_held_out(name, sides, stage.result)
            write_lengths(stage.result / f"{name}.docs", document_lengths(source))
        combined = side_paths(stage.scratch, "combined", self.languages)
        for texts in self.train:
            copy_normalized(texts, raw, combined)
        self.preprocess_and_clean(combined, side_paths(stage.result, "train", self.languages), stage)


def parse_wmt(languages: Sequence[str], train: Sequence[dict[str, Any]], **fields: Any) -> Wmt:
    """Return the corpus that a table of wmt.toml describes."""

    def parse_text(text: dict[str, Any]) -> ParallelText:
        source, member, separator = SOURCES[text["source"]], text["member"], text.get("separator")
        sides = zip(text.get("languages", languages), text.get("columns", (0, 1)), strict=True)
        first, second = (PublishedText(source, member.format(name), separator, column) for name, column in sides)
        return first, second

    source, target = languages
    return Wmt((source, target), tuple(map(parse_text, train)), **fields)


IWSLT14_TRAIN = published_pair("de-en.tgz", ("de", "en"), "de-en/train.tags.de-en.{}")
IWSLT14_TEST_SETS = {
    name: published_pair("de-en.tgz", ("de", "en"), f"de-en/IWSLT14.{name}.de-en.{{}}.xml")
    for name in ("TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012")
}
TEDX = "TEDX.dev2012"
MISALIGNED_TALK, MISALIGNED_NUMBERS = "D06", range(71, 143)
"""The segments of TEDX.dev2012 that are misaligned by one line (fairseq issue 4146)."""

VALID_EVERY = 23

TALK_START = "<url>"
METADATA = (TALK_START, "<talkid>", "<keywords>")
"""Beginnings of the lines of a training file that are not text."""

TEXT_TAG = re.compile(r"</?(?:title|description)>")


@dataclass(frozen=True)
class Iwslt14(Corpus):
    """IWSLT14 German–English, prepared as in fairseq's recipe, which most papers use.

    The training talks are tokenized, cleaned (at most 175 words per side, neither side more than 1.5 times as long as
    the other) and lowercased. Every 23rd pair is used for validation. The test set consists of dev2010, TEDX.dev2012
    and tst2010 to tst2012: 6,750 pairs. [RF] lists the same sets without TEDX.dev2012: 5,585 pairs.

    Attributes:
        tedx: test on TEDX.dev2012 too, as fairseq does and [RF] does not.
        misaligned: test on the 72 pairs of TEDX.dev2012 that are not translations of each other too.
    """

    tedx: bool = True
    misaligned: bool = True

    languages = ("de", "en")
    bpe_merges = 10_000
    lowercased = True
    max_length = 175
    punctuation_normalized = False

    def settings(self) -> dict[str, Scalar]:
        """See Corpus."""
        return asdict(self)

    def published_texts(self, raw: Path) -> list[ParallelText]:
        """See Corpus."""
        return [IWSLT14_TRAIN, *IWSLT14_TEST_SETS.values()]

    @staticmethod
    def preprocess(lines: list[str], language: str) -> list[str]:
        """See Corpus; fairseq's recipe does not normalize punctuation."""
        return lowercase(tokenize(lines, language))

    def write(self, raw: Path, stage: StagingArea) -> None:
        """See Corpus."""
        self.write_test(raw, stage.result)
        read, cleaned = (side_paths(stage.scratch, name, self.languages) for name in ("read", "cleaned"))
        counts = []
        for text, path in zip(IWSLT14_TRAIN, read, strict=True):
            talks = read_talks(text.lines(raw))
            write_lines(path, map(normalize_line, chain.from_iterable(talks)))
            counts.append(sum(map(len, talks)))
        names = IWSLT14_TRAIN[0].path, IWSLT14_TRAIN[1].path
        check_line_counts(names, counts, lambda side: read_clean_lines(read[side]))
        kept = self.preprocess_and_clean(read, cleaned, stage)
        is_train = split_off_valid(read, cleaned, kept, stage.result)
        write_lengths(stage.result / "train.docs", lengths_after_cleaning(map(len, talks), is_train))

    def write_test(self, raw: Path, folder: Path) -> None:
        """Write the test set, its documents (one per talk) and its subsets."""
        for side, language in enumerate(self.languages):
            segments = {
                name: [] if name == TEDX and not self.tedx else parse_segments(texts[side], raw)
                for name, texts in IWSLT14_TEST_SETS.items()
            }
            if not self.misaligned:
                segments[TEDX] = [segment for segment in segments[TEDX] if not is_misaligned(segment)]
            together = list(chain.from_iterable(segments.values()))
            # As in fairseq's recipe, typographic apostrophes are replaced here but not in the training text.
            lines = [normalize_line(segment.text.replace("’", "'")) for segment in together]
            write_lines(folder / f"test.raw.{language}", lines)
            write_lines(folder / f"test.{language}", self.preprocess(lines, language))
        write_lengths(folder / "test.docs", document_lengths(together))
        bitext.write_subsets(folder / "test.subsets.json", self.subsets(segments))

    def subsets(self, segments: dict[str, list[Segment]]) -> Subsets:
        """Return the smaller test sets that are subsets of this one."""
        if not self.tedx:
            return {}
        tedx = dict(enumerate(segments[TEDX], len(segments["TED.dev2010"])))
        subsets = {"without TEDX.dev2012, as [RF]": list(tedx)}
        if self.misaligned:
            subsets["without 72 misaligned pairs"] = [line for line, segment in tedx.items() if is_misaligned(segment)]
        return subsets


def read_talks(lines: Iterable[str]) -> list[list[str]]:
    """Return the lines of each talk in a training file (train.tags…).

    As in fairseq's recipe, titles and descriptions are text, while addresses, numbers and keywords are not.
    """
    talks: list[list[str]] = [[]]
    for line in lines:
        if line.startswith(TALK_START):
            talks.append([])
        if not line.startswith(METADATA):
            talks[-1].append(TEXT_TAG.sub("", line.removesuffix("\n")))
    return [talk for talk in talks if talk]


def is_misaligned(segment: Segment) -> bool:
    """Return whether a segment of TEDX.dev2012 is not a translation of the other side."""
    return segment.document == MISALIGNED_TALK and segment.number in MISALIGNED_NUMBERS


def split_off_valid(read: PathPair, cleaned: PathPair, kept: list[bool], folder: Path) -> list[bool]:
    """Write every 23rd of the cleaned pairs to valid and the others to train.

    Args:
        read: the files before preprocessing.
        cleaned: the preprocessed pairs that were kept.
        kept: for each pair of `read` whether it was kept.
        folder: where to write.

    Returns:
        For each pair of `read` whether it is in train.
    """
    kept_numbers = [number for number, is_kept in enumerate(kept) if is_kept]
    valid_numbers = set(kept_numbers[VALID_EVERY - 1 :: VALID_EVERY])
    for read_path, cleaned_path in zip(read, cleaned, strict=True):
        language = read_path.suffix
        lines = list(read_clean_lines(cleaned_path))
        write_lines(folder / f"valid{language}", lines[VALID_EVERY - 1 :: VALID_EVERY])
        del lines[VALID_EVERY - 1 :: VALID_EVERY]
        write_lines(folder / f"train{language}", lines)
        untokenized = (line for number, line in enumerate(read_clean_lines(read_path)) if number in valid_numbers)
        write_lines(folder / f"valid.raw{language}", untokenized)
    return [is_kept and number not in valid_numbers for number, is_kept in enumerate(kept)]


EUROPARL7_HELD_OUT = {
    split: published_pair(f"concatenated_en2de_{name}_{{}}.txt", ("en", "de"))
    for split, name in (("valid", "dev"), ("test", "test"))
}
EUROPARL7_TRAIN = published_pair("concatenated_en2de_train_{}.txt", ("en", "de"))
RUNNING_TEXT = published_pair("training-parallel-europarl-v7.tgz", ("en", "de"), "training/europarl-v7.de-en.{}")
"""Europarl v7, which does not mark documents."""

SESSION_START = "Resumption of the session"
MAX_DOCUMENT_LENGTH = 40
"""Maximum number of lines of a document that is cut out of running text."""

NEITHER_LETTER_NOR_DIGIT = re.compile(r"[\W_]+")


@dataclass(frozen=True)
class Europarl7(Corpus):
    """Debates of the European Parliament, with the held-out documents of Maruf et al. 2019 ([RF] App. B).

    Their training documents are available on request only. Without them, all of Europarl v7 is cut into documents where
    a session opens and after every 40 lines. Pairs that recur in validation or test are removed; only letters and
    digits are compared, because the spelling differs ("96 / 71" for "96/71").

    Attributes:
        first: number of lines of Europarl v7 to train on, None for the authors' documents or else all lines.
        bpe_merges: see Corpus.
    """

    first: int | None = None
    bpe_merges: int = 32_000
    languages = ("en", "de")
    separator = "<sep>"

    def settings(self) -> dict[str, Scalar]:
        """See Corpus."""
        return {} if self.first is None else {"first": self.first}

    def uses_documents(self, raw: Path) -> bool:
        """Return whether to train on the authors' documents: they are available and wanted."""
        return self.first is None and all((raw / text.source.name).is_file() for text in EUROPARL7_TRAIN)

    def published_texts(self, raw: Path) -> list[ParallelText]:
        """See Corpus."""
        return [*EUROPARL7_HELD_OUT.values(), EUROPARL7_TRAIN if self.uses_documents(raw) else RUNNING_TEXT]

    def write(self, raw: Path, stage: StagingArea) -> None:
        """See Corpus."""
        held_out_keys: set[str] = set()
        for name, texts in EUROPARL7_HELD_OUT.items():
            paths, lengths = self.read_documents(name, texts, raw, stage.scratch)
            source, target = (list(read_clean_lines(path)) for path in paths)
            held_out_keys.update(map(comparison_key, chain(source, target)))
            self.write_held_out(name, (source, target), stage.result)
            write_lengths(stage.result / f"{name}.docs", lengths)
        if self.uses_documents(raw):
            train, lengths = self.read_documents("train", EUROPARL7_TRAIN, raw, stage.scratch)
        else:
            train, lengths = self.cut_running_text(raw, held_out_keys, stage.scratch)
        kept = self.preprocess_and_clean(train, side_paths(stage.result, "train", self.languages), stage)
        write_lengths(stage.result / "train.docs", lengths_after_cleaning(lengths, kept))

    def read_documents(self, name: str, texts: ParallelText, raw: Path, scratch: Path) -> tuple[PathPair, list[int]]:
        """Read texts with a line <d> before each document; return the sentences and the lengths of the documents."""
        marked, plain = (side_paths(scratch, f"{name}.{kind}", self.languages) for kind in ("marked", "plain"))
        copy_normalized(texts, raw, marked)
        return plain, bitext.remove_markup("d", marked, plain, (raw / texts[0].path, raw / texts[1].path))

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


_WMT = tomllib.loads((files(__package__) / "wmt.toml").read_text(encoding="utf-8"))

CORPORA: dict[str, Corpus] = {
    "multi30k_de_en": Multi30k(),
    "iwslt14_de_en": Iwslt14(),
    "europarl7_en_de": Europarl7(),
    "europarl7_small": Europarl7(first=20_000, bpe_merges=3_000),
    **{name: parse_wmt(**fields) for name, fields in _WMT.items()},
}
"""All corpora by name, which is also that of the script in data_prep/ and of the data-bin."""
