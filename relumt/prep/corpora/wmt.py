"""The news translation tasks of WMT that the papers train on: which files, and how they become train, valid and test.

Training texts in several spellings get plain punctuation; pairs of at most 250 words, neither side 1.5 times the other.
Validation is on the test set of the year before, as [RL] §5 and [RF] A.2 have it; the test sets are sacreBLEU's.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from relumt.data.document_lengths import write_lengths
from relumt.errors import UserError
from relumt.prep.bitext import check_line_counts
from relumt.prep.corpora.corpus import Corpus, each, rewrites_of_train, tokenise_and_clean, write_held_out
from relumt.prep.corpora.download import Source, fetch
from relumt.prep.corpora.packed import member_lines, unpacked
from relumt.prep.corpora.ted import lengths_by_talk, segments_in
from relumt.prep.progress import Steps
from relumt.text_files import normalize_line, open_text


@dataclass(frozen=True)
class Part:
    """A text in a published archive.

    Attributes:
        archive: the file.
        members: paths of the two sides in it, source first; they may hold *, and are the same where a line holds both.
        separator: what stands between the sides of such a line.
        columns: which of the two there is the source, and which the target.
    """

    archive: Source
    members: tuple[str, str]
    separator: str | None = None
    columns: tuple[int, int] = (0, 1)

    @property
    def names(self) -> tuple[Path, Path]:
        """What to call the sides."""
        source, target = (Path(self.archive.name) / member for member in self.members)
        return source, target

    def lines(self, raw: Path, side: int) -> Iterator[str]:
        """The lines of the source (0) or target (1); raises UserError if one lacks the separator."""
        for number, line in enumerate(member_lines(raw, self.archive.name, self.members[side]), start=1):
            if self.separator is None:
                yield line
                continue
            sides = line.split(self.separator)
            if len(sides) != 2:
                where = f"{self.archive.name}/{self.members[side]}:{number}"
                raise UserError(f"{where}: {len(sides)} sides, not two; get it again")
            yield sides[self.columns[side]]


@dataclass(frozen=True)
class Wmt(Corpus):
    """A language pair of one year.

    Attributes:
        languages: codes, source first.
        train: its parts, in order.
        valid, test: what sacreBLEU calls the sets of evaluation ("wmt14/full").
        max_ratio: see Corpus; larger for a script without spaces.
    """

    languages: tuple[str, str]
    train: tuple[Part, ...]
    valid: str
    test: str
    max_ratio: float = 1.5
    merges: int = 32_000

    def files(self, raw: Path, steps: Steps) -> list[Path]:
        """The archives; those that were unpacked into `raw` are not missed."""
        parts = [*self.train, self.evaluation(self.valid), self.evaluation(self.test)]
        found = []
        for part in parts:
            if (raw / part.archive.name).is_file() or not all(unpacked(raw, member) for member in part.members):
                found.append(fetch(part.archive, raw, steps))
            else:
                found += [path for member in part.members for path in unpacked(raw, member)]
        return sorted(set(found))

    def evaluation(self, name: str) -> Part:
        """A set of evaluation as sacreBLEU has it."""
        from sacrebleu.dataset import DATASETS

        known = DATASETS[name]
        source, target = known.langpairs["-".join(self.languages)]
        archive = Source(f"{name.replace('/', '-')}.tgz", tuple(known.data), f"md5:{known.md5[0]}")
        return Part(archive, (source, target))

    def write(self, raw: Path, folder: Path, scratch: Path, steps: Steps) -> None:
        """See Corpus."""
        for name, evaluated in (("valid", self.valid), ("test", self.test)):
            self.write_evaluation(name, self.evaluation(evaluated), raw, folder)
        read = each(scratch, "read", self.languages)
        self.read_train(raw, read, steps)
        cleaned, _ = tokenise_and_clean(read, rewrites_of_train(self.languages), self, scratch, steps)
        for path, place in zip(cleaned, each(folder, "train", self.languages), strict=True):
            path.rename(place)

    def write_evaluation(self, name: str, part: Part, raw: Path, folder: Path) -> None:
        """Write valid or test, and its documents."""
        sides = [segments_in(part.lines(raw, side), part.members[side]) for side in (0, 1)]
        source, target = ([segment.text for segment in side] for side in sides)
        check_line_counts(part.names, (len(source), len(target)), lambda side: (source, target)[side])
        write_held_out(name, (source, target), self.languages, folder)
        write_lengths(folder / f"{name}.docs", lengths_by_talk(sides[0]))

    def read_train(self, raw: Path, outputs: tuple[Path, Path], steps: Steps) -> None:
        """Write every part's lines, one part after the other; raises UserError where the sides of one do not match."""
        with ExitStack() as stack:
            files = [stack.enter_context(open_text(path, "w")) for path in outputs]
            for part in self.train:
                counts = [0, 0]
                with steps.step(f"read {part.archive.name}") as advance:
                    for side, file in enumerate(files):
                        for line in part.lines(raw, side):
                            file.write(normalize_line(line) + "\n")
                            counts[side] += 1
                            advance(1)
                check_line_counts(part.names, counts, partial(part.lines, raw))
