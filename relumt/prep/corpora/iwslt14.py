"""IWSLT14 German–English as fairseq's recipe makes it, which everybody compares on.

Training talks, tokenised, at most 175 words a sentence and neither side 1.5 times the other, in lower case; every 23rd
pair is taken for validation. The test set is dev2010, TEDX.dev2012 and tst2010–2012: 6,750 pairs. [RF] lists the same
without TEDX.dev2012: 5,585.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path

from relumt.errors import UserError
from relumt.prep.bitext import check_line_counts, clean_pairs
from relumt.prep.corpora.ted import Segment, read_evaluation, read_training
from relumt.prep.documents import after_cleaning, write_lengths
from relumt.prep.lines import normalise, open_text, processes_for, read_clean, rewrite_file, write_lines
from relumt.prep.progress import Steps
from relumt.prep.words import lowercase, tokenise

LANGUAGES = ("de", "en")
TEST_SETS = ("TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012")
TEDX = "TEDX.dev2012"
MISALIGNED = ("D06", range(71, 143))
"""In TEDX.dev2012: the talk and the segments whose sides are shifted against each other by one (fairseq issue 4146)."""

MAX_LENGTH, MAX_RATIO = 175, 1.5
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


def write_test(raw: Path, folder: Path, which: TestSet) -> None:
    """Write test.de, test.en, tokenised and in lower case, and test.docs, a talk a document."""
    for language in LANGUAGES:
        segments = [segment for name in TEST_SETS for segment in chosen(raw, name, language, which)]
        # fairseq's recipe makes the typographic apostrophe a plain one here, and not in the training text.
        lines = [normalise(segment.text.replace("’", "'")) for segment in segments]
        write_lines(folder / f"test.{language}", lowercase(tokenise(lines, language)))
    write_lengths(folder / "test.docs", talks(segments))


def chosen(raw: Path, name: str, language: str, which: TestSet) -> list[Segment]:
    """The segments of one evaluation set that are tested on."""
    if name == TEDX and not which.tedx:
        return []
    segments = read_evaluation(find(raw, f"*{name}.de-en.{language}.xml"))
    if name == TEDX and not which.misaligned:
        talk, numbers = MISALIGNED
        segments = [segment for segment in segments if segment.talk != talk or segment.number not in numbers]
    return segments


def talks(segments: Sequence[Segment]) -> list[int]:
    """Lengths of the documents: a talk each, and where segments were left out of one, a part of it each."""
    lengths: list[int] = []
    before = None
    for segment in segments:
        if before is None or (segment.talk, segment.number) != (before.talk, before.number + 1):
            lengths.append(0)
        lengths[-1] += 1
        before = segment
    return lengths


def write_train_and_valid(raw: Path, folder: Path, scratch: Path, steps: Steps) -> None:
    """Write train and valid, tokenised, cleaned and in lower case, and train.docs; `scratch` is for files between."""
    paths = [find(raw, f"train.tags.de-en.{language}") for language in LANGUAGES]
    firsts: list[bool] = []
    counts = []
    for language, path in zip(LANGUAGES, paths, strict=True):
        with steps.step(f"read {path.name}"), open_text(scratch / f"read.{language}", "w") as output:
            firsts = []
            for first, line in read_training(path):
                firsts.append(first)
                output.write(normalise(line) + "\n")
        counts.append(len(firsts))
    check_line_counts(paths[0], counts[0], paths[1], counts[1])
    for language in LANGUAGES:
        with steps.step(f"tokenise train.{language}", counts[0]) as advance:
            rewrite = partial(tokenised_in_lower_case, language=language)
            source, target = scratch / f"read.{language}", scratch / f"tokenised.{language}"
            rewrite_file(source, target, rewrite, processes_for(counts[0]), advance)
    of_both = [tuple(scratch / f"{name}.{language}" for language in LANGUAGES) for name in ("tokenised", "cleaned")]
    kept, dropped = clean_pairs(*of_both, MAX_LENGTH, MAX_RATIO)
    steps.say(f"dropped {dropped.total()} of {len(kept)} pairs of train")
    to_valid = split(of_both[1], folder)
    trained = iter(to_valid)
    stays = [keep and not next(trained) for keep in kept]
    write_lengths(folder / "train.docs", after_cleaning(lengths_of(firsts), stays))


def tokenised_in_lower_case(lines: list[str], language: str) -> list[str]:
    """As fairseq's recipe has every text."""
    return lowercase(tokenise(lines, language))


def split(cleaned: tuple[Path, ...], folder: Path) -> list[bool]:
    """Write every 23rd pair to valid and the others to train; returns for each whether it went to valid."""
    to_valid: list[bool] = []
    for language, path in zip(LANGUAGES, cleaned, strict=True):
        to_valid = []
        with (
            open_text(folder / f"train.{language}", "w") as train,
            open_text(folder / f"valid.{language}", "w") as valid,
        ):
            for number, line in enumerate(read_clean(path), start=1):
                to_valid.append(number % VALID_EVERY == 0)
                (valid if to_valid[-1] else train).write(line + "\n")
    return to_valid


def lengths_of(firsts: Sequence[bool]) -> list[int]:
    """Lengths of the documents whose first lines are marked."""
    starts = [number for number, first in enumerate(firsts) if first] + [len(firsts)]
    return [stop - start for start, stop in pairwise(starts)]
