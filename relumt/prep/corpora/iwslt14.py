"""IWSLT14 German–English as fairseq's recipe makes it, which everybody compares on.

Training talks, tokenised, at most 175 words a sentence and neither side 1.5 times the other, in lower case; every 23rd
pair is taken for validation. The test set is dev2010, TEDX.dev2012 and tst2010–2012: 6,750 pairs. [RF] lists the same
without TEDX.dev2012: 5,585.
"""

import tarfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import compress, pairwise
from pathlib import Path

from relumt.data.document_lengths import lengths_after_cleaning, write_lengths
from relumt.errors import UserError
from relumt.prep.corpora.corpus import Corpus, each, tokenise_and_clean
from relumt.prep.corpora.download import Source, fetch
from relumt.prep.corpora.packed import opened
from relumt.prep.corpora.ted import Segment, lengths_by_talk, read_evaluation, read_training
from relumt.prep.progress import Steps
from relumt.prep.test_subsets import write_subsets
from relumt.prep.tokenization import lowercase, tokenize
from relumt.text_files import normalize_line, open_text, read_clean_lines, write_lines

ARCHIVE = Source("de-en.tgz", ("https://dl.fbaipublicfiles.com/fairseq/data/iwslt14/de-en.tgz",))
LANGUAGES = ("de", "en")
TEST_SETS = ("TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012")
TEDX = "TEDX.dev2012"
MISALIGNED = ("D06", range(71, 143))
"""In TEDX.dev2012: the talk and the segments whose sides are shifted against each other by one (fairseq issue 4146)."""

VALID_EVERY = 23


@dataclass(frozen=True)
class TestSet:
    """Which pairs are tested on.

    Attributes:
        tedx: with TEDX.dev2012, as fairseq; without it, as [RF].
        misaligned: with the 72 pairs of TEDX.dev2012 that do not translate each other.
    """

    tedx: bool = True
    misaligned: bool = True


def find(raw: Path, pattern: str) -> Path:
    """The one file below `raw` whose name fits the pattern, gzipped or not; raises UserError if there is not one."""
    found = sorted({path for suffix in ("", ".gz") for path in raw.rglob(pattern + suffix)})
    if len(found) != 1:
        which = ", ".join(map(str, found)) or "none"
        raise UserError(f"{raw}: needs one file {pattern}, found {which}; unpack de-en.tgz of IWSLT14 there")
    return found[0]


def published(raw: Path) -> list[Path]:
    """Every file that the corpus is made of; raises UserError if one is missing."""
    patterns = [f"train.tags.de-en.{language}" for language in LANGUAGES]
    patterns += [f"*{name}.de-en.{language}.xml" for name in TEST_SETS for language in LANGUAGES]
    return [find(raw, pattern) for pattern in patterns]


@dataclass(frozen=True)
class Iwslt14(Corpus):
    """The corpus with one of its test sets."""

    test_set: TestSet = field(default_factory=TestSet)

    languages = LANGUAGES
    merges = 10_000
    lowercased = True
    max_length = 175

    def files(self, raw: Path, steps: Steps) -> list[Path]:
        """See Corpus."""
        if not (raw / ARCHIVE.name).is_file() and any(raw.rglob("train.tags.*")):
            return published(raw)
        return [fetch(ARCHIVE, raw, steps)]

    def switches(self) -> dict[str, object]:
        """See Corpus."""
        return asdict(self.test_set)

    def write(self, raw: Path, folder: Path, scratch: Path, steps: Steps) -> None:
        """See Corpus."""
        files = raw
        if (raw / ARCHIVE.name).is_file():
            files = scratch / "files"
            unpack(raw / ARCHIVE.name, files, steps)
        write_test(files, folder, self.test_set)
        self.write_train_and_valid(files, folder, scratch, steps)

    def write_train_and_valid(self, files: Path, folder: Path, scratch: Path, steps: Steps) -> None:
        """Write train and valid, tokenised, cleaned and in lower case, and train.docs."""
        firsts: list[bool] = []
        read = each(scratch, "read", LANGUAGES)
        for path, output in zip(
            (find(files, f"train.tags.de-en.{language}") for language in LANGUAGES), read, strict=True
        ):
            with steps.step(f"read {path.name}"), open_text(output, "w") as text:
                firsts = []
                for first, line in read_training(path):
                    firsts.append(first)
                    text.write(normalize_line(line) + "\n")
        source, target = (partial(tokenised_in_lower_case, language=language) for language in LANGUAGES)
        cleaned, kept = tokenise_and_clean(read, (source, target), self, scratch, steps)
        to_valid = split(cleaned, folder)
        trained = iter(to_valid)
        is_valid = [keep and next(trained) for keep in kept]
        for path, plain in zip(read, each(folder, "valid.raw", LANGUAGES), strict=True):
            write_lines(plain, compress(read_clean_lines(path), is_valid))
        stays = [keep and not taken for keep, taken in zip(kept, is_valid, strict=True)]
        write_lengths(folder / "train.docs", lengths_after_cleaning(lengths_of(firsts), stays))


def unpack(archive: Path, folder: Path, steps: Steps) -> None:
    """Unpack the published archive, a .tgz; raises UserError if it is broken."""
    with steps.step(f"unpack {archive}"), opened(archive) as packed:
        if not isinstance(packed, tarfile.TarFile):
            raise UserError(f"{archive}: not a .tgz; delete it and get it again")
        packed.extractall(folder, filter="data")


def write_test(raw: Path, folder: Path, which: TestSet) -> None:
    """Write test.de, test.en, tokenised and in lower case, test.docs, a talk a document, and test.subsets.json."""
    for language in LANGUAGES:
        of_set = {name: chosen(raw, name, language, which) for name in TEST_SETS}
        segments = [segment for of_one in of_set.values() for segment in of_one]
        # fairseq's recipe makes the typographic apostrophe a plain one here, and not in the training text.
        lines = [normalize_line(segment.text.replace("’", "'")) for segment in segments]
        write_lines(folder / f"test.raw.{language}", lines)
        write_lines(folder / f"test.{language}", lowercase(tokenize(lines, language)))
    write_lengths(folder / "test.docs", lengths_by_talk(segments))
    write_subsets(folder / "test.subsets.json", parts_of(of_set, which))


def parts_of(of_set: dict[str, list[Segment]], which: TestSet) -> dict[str, list[int]]:
    """The smaller test sets inside the one chosen: name → numbers of the lines, from 0, that it leaves out."""
    if not which.tedx:
        return {}
    start = sum(len(segments) for segments in list(of_set.values())[: TEST_SETS.index(TEDX)])
    tedx = dict(enumerate(of_set[TEDX], start))
    parts = {"without TEDX.dev2012, as [RF]": list(tedx)}
    if which.misaligned:
        parts["without 72 misaligned pairs"] = [line for line, segment in tedx.items() if is_misaligned(segment)]
    return parts


def is_misaligned(segment: Segment) -> bool:
    """Whether a segment of TEDX.dev2012 does not translate its other side."""
    talk, numbers = MISALIGNED
    return segment.talk == talk and segment.number in numbers


def chosen(raw: Path, name: str, language: str, which: TestSet) -> list[Segment]:
    """The segments of one evaluation set that are tested on."""
    if name == TEDX and not which.tedx:
        return []
    segments = read_evaluation(find(raw, f"*{name}.de-en.{language}.xml"))
    if name == TEDX and not which.misaligned:
        segments = [segment for segment in segments if not is_misaligned(segment)]
    return segments


def tokenised_in_lower_case(lines: list[str], language: str) -> list[str]:
    """As fairseq's recipe has every text."""
    return lowercase(tokenize(lines, language))


def split(cleaned: tuple[Path, ...], folder: Path) -> list[bool]:
    """Write every 23rd pair to valid and the others to train; returns for each whether it went to valid."""
    to_valid: list[bool] = []
    for language, path in zip(LANGUAGES, cleaned, strict=True):
        to_valid = []
        with (
            open_text(folder / f"train.{language}", "w") as train,
            open_text(folder / f"valid.{language}", "w") as valid,
        ):
            for number, line in enumerate(read_clean_lines(path), start=1):
                to_valid.append(number % VALID_EVERY == 0)
                (valid if to_valid[-1] else train).write(line + "\n")
    return to_valid


def lengths_of(firsts: Sequence[bool]) -> list[int]:
    """Lengths of the documents whose first lines are marked."""
    starts = [number for number, first in enumerate(firsts) if first] + [len(firsts)]
    return [stop - start for start, stop in pairwise(starts)]
