"""IWSLT14 German–English, prepared as in fairseq's recipe, which most papers use.

The training talks are tokenized, cleaned (at most 175 words per side, neither side more than 1.5 times as long as the
other) and lowercased. Every 23rd pair is used for validation. The test set consists of dev2010, TEDX.dev2012 and
tst2010 to tst2012: 6,750 pairs. [RF] lists the same sets without TEDX.dev2012: 5,585 pairs.
"""

import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path

from relumt.atomic_output import StagingArea
from relumt.data.document_lengths import lengths_after_cleaning, write_lengths
from relumt.prep.bitext import PathPair, check_line_counts, side_paths
from relumt.prep.corpora.corpus import Corpus
from relumt.prep.corpora.published_text import ParallelText, parallel_archive
from relumt.prep.corpora.sgml import Segment, document_lengths, parse_segments
from relumt.prep.progress import progress_step
from relumt.prep.subsets import Subsets, write_subsets
from relumt.prep.tokenization import lowercase, tokenize
from relumt.text_files import normalize_line, read_clean_lines, write_lines

ARCHIVE = "de-en.tgz"
LANGUAGES = ("de", "en")
TRAIN = parallel_archive(ARCHIVE, "de-en/train.tags.de-en.{}", LANGUAGES)
TEST_SETS = {
    name: parallel_archive(ARCHIVE, f"de-en/IWSLT14.{name}.de-en.{{}}.xml", LANGUAGES)
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
    """The corpus with one of its test sets.

    Attributes:
        tedx: test on TEDX.dev2012 too, as fairseq does and [RF] does not.
        misaligned: test on the 72 pairs of TEDX.dev2012 that are not translations of each other too.
    """

    tedx: bool = True
    misaligned: bool = True

    languages = LANGUAGES
    bpe_merges = 10_000
    lowercased = True
    max_length = 175
    punctuation_normalized = False

    def settings(self) -> dict[str, str | int | float | bool | None]:
        """See Corpus."""
        return asdict(self)

    def published_texts(self, raw: Path) -> list[ParallelText]:
        """See Corpus."""
        return [TRAIN, *TEST_SETS.values()]

    @staticmethod
    def preprocess(lines: list[str], language: str) -> list[str]:
        """See Corpus; fairseq's recipe does not normalize punctuation."""
        return lowercase(tokenize(lines, language))

    def write(self, raw: Path, stage: StagingArea) -> None:
        """See Corpus."""
        self.write_test(raw, stage.result)
        read, cleaned = (side_paths(stage.scratch, name, LANGUAGES) for name in ("read", "cleaned"))
        counts = []
        for text, path in zip(TRAIN, read, strict=True):
            with progress_step(f"read {text.path}"):
                talks = read_talks(text.lines(raw))
                write_lines(path, map(normalize_line, chain.from_iterable(talks)))
                counts.append(sum(map(len, talks)))
        check_line_counts((TRAIN[0].path, TRAIN[1].path), counts, lambda side: read_clean_lines(read[side]))
        kept = self.preprocess_and_clean(read, cleaned, stage)
        is_train = split_off_valid(read, cleaned, kept, stage.result)
        write_lengths(stage.result / "train.docs", lengths_after_cleaning(map(len, talks), is_train))

    def write_test(self, raw: Path, folder: Path) -> None:
        """Write the test set, its documents (one per talk) and its subsets."""
        for side, language in enumerate(LANGUAGES):
            segments = {name: self.read_test_set(name, texts, side, raw) for name, texts in TEST_SETS.items()}
            # As in fairseq's recipe, typographic apostrophes are replaced here but not in the training text.
            lines = [normalize_line(s.text.replace("’", "'")) for s in chain.from_iterable(segments.values())]
            write_lines(folder / f"test.raw.{language}", lines)
            write_lines(folder / f"test.{language}", self.preprocess(lines, language))
        write_lengths(folder / "test.docs", document_lengths(list(chain.from_iterable(segments.values()))))
        write_subsets(folder / "test.subsets.json", self.subsets(segments))

    def read_test_set(self, name: str, texts: ParallelText, side: int, raw: Path) -> list[Segment]:
        """Return the segments of one evaluation set that are to be tested on."""
        if name == TEDX and not self.tedx:
            return []
        segments = parse_segments(texts[side].lines(raw), str(texts[side].path))
        if name == TEDX and not self.misaligned:
            segments = [segment for segment in segments if not is_misaligned(segment)]
        return segments

    def subsets(self, segments: dict[str, list[Segment]]) -> Subsets:
        """Return the smaller test sets that are subsets of this one."""
        if not self.tedx:
            return {}
        names = list(TEST_SETS)
        start = sum(len(segments[name]) for name in names[: names.index(TEDX)])
        tedx = dict(enumerate(segments[TEDX], start))
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
    for language, read_path, cleaned_path in zip(LANGUAGES, read, cleaned, strict=True):
        lines = list(read_clean_lines(cleaned_path))
        write_lines(folder / f"valid.{language}", lines[VALID_EVERY - 1 :: VALID_EVERY])
        del lines[VALID_EVERY - 1 :: VALID_EVERY]
        write_lines(folder / f"train.{language}", lines)
        untokenized = (line for number, line in enumerate(read_clean_lines(read_path)) if number in valid_numbers)
        write_lines(folder / f"valid.raw.{language}", untokenized)
    return [is_kept and number not in valid_numbers for number, is_kept in enumerate(kept)]
