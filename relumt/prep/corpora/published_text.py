"""One side of a parallel text as it is published: a file, a member of an archive, or a column of either."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from relumt.errors import UserError
from relumt.prep.corpora.archives import find_extracted, read_member
from relumt.prep.corpora.download import fetch
from relumt.prep.corpora.sources import SOURCES, Source
from relumt.text_files import read_lines


@dataclass(frozen=True)
class PublishedText:
    """One side of a parallel text.

    Attributes:
        source: the published file.
        member: path inside it if it is an archive; with * if there are several texts. Empty if the file is the text.
        separator: what separates source and target if a line holds both.
        column: which column of such a line is this side.
    """

    source: Source
    member: str = ""
    separator: str | None = None
    column: int = 0

    @property
    def path(self) -> Path:
        """The path to show in messages."""
        return Path(self.source.name) / self.member

    def fetch(self, raw: Path) -> list[Path]:
        """Return the files in `raw` that hold the text, downloaded unless they or extracted ones are there."""
        extracted = find_extracted(raw, self.member) if self.member else []
        if extracted and not (raw / self.source.name).is_file():
            return extracted
        return [fetch(self.source, raw)]

    def lines(self, raw: Path) -> Iterator[str]:
        """Yield the lines of the text; raise `UserError` if a line should have two columns and does not."""
        lines = read_member(raw, self.source.name, self.member) if self.member else read_lines(raw / self.source.name)
        if self.separator is None:
            yield from lines
            return
        for number, line in enumerate(lines, start=1):
            columns = line.split(self.separator)
            if len(columns) != 2:
                raise UserError(
                    f"{self.path}:{number}: expected two columns separated by {self.separator!r}, found "
                    f"{len(columns)}; download {self.source.name} again"
                )
            yield columns[self.column]


ParallelText = tuple[PublishedText, PublishedText]  # source and target


def parallel_archive(archive: str, members: str, languages: Sequence[str]) -> ParallelText:
    """Return the parallel text in an archive of sources.toml; {} in `members` stands for the language."""
    source, target = (PublishedText(SOURCES[archive], members.format(language)) for language in languages)
    return source, target


def parallel_files(names: str, languages: Sequence[str]) -> ParallelText:
    """Return the parallel text in two files of sources.toml; {} in `names` stands for the language."""
    source, target = (PublishedText(SOURCES[names.format(language)]) for language in languages)
    return source, target
