"""The texts in published files, and their forms: each is read as segments, sentences with their place in a document."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from relumt.corpora.bitext import PathPair, check_line_counts
from relumt.corpora.parallel import progress_step
from relumt.corpora.published_files import Source, fetch, read_member
from relumt.errors import UserError
from relumt.files import normalize_line, open_text, read_lines


class Segment(NamedTuple):
    """A sentence, with the identifier of its document and its number there."""

    document: str
    number: int
    text: str


def read_marked(lines: Iterable[str], name: str, markup: tuple[str, ...] = ("<d>",)) -> Iterator[Segment]:
    """Yield the lines of a text that do not begin with markup; markup of the first kind begins a document."""
    document = number = 0
    for line in lines:
        if line.startswith(markup):
            document += line.startswith(markup[0])
        else:
            number += 1
            yield Segment(str(document), number, line)


SESSION_START = "Resumption of the session"
MAX_DOCUMENT_LENGTH = 40
"""Maximum number of lines of a document that is cut out of running text."""


def read_running(lines: Iterable[str], name: str) -> Iterator[Segment]:
    """Yield the lines of Europarl: a document begins with a session, and after MAX_DOCUMENT_LENGTH lines."""
    document = length = 0
    for number, line in enumerate(lines):
        if length == MAX_DOCUMENT_LENGTH or line.strip() == SESSION_START:
            document, length = document + 1, 0
        length += 1
        yield Segment(str(document), number, line)


METADATA = ("<url>", "<talkid>", "<keywords>")
"""Beginnings of the lines of a training file that are not text; the first one begins a talk."""

TEXT_TAG = re.compile(r"</?(?:title|description)>")


def read_talks(lines: Iterable[str], name: str) -> Iterator[Segment]:
    """Yield the lines of a training file of IWSLT14 (train.tags…).

    As in fairseq's recipe, titles and descriptions are text, while addresses, numbers and keywords are not.
    """
    return (segment._replace(text=TEXT_TAG.sub("", segment.text)) for segment in read_marked(lines, name, METADATA))


DOCUMENT = re.compile(r'<doc\b[^>]*\bdocid="([^"]*)"', re.IGNORECASE)
SEGMENT_START = re.compile(r"<seg\b", re.IGNORECASE)
SEGMENT = re.compile(r'<seg id="(\d+)">\s*(.*?)\s*</seg>', re.IGNORECASE)


def read_segments(lines: Iterable[str], name: str) -> Iterator[Segment]:
    """Yield the segments of an evaluation set of WMT or IWSLT: SGML or XML with documents (talks, articles).

    Raises:
        UserError: a line has several of them, or one that is not complete.
    """
    document = ""
    for number, line in enumerate(lines, start=1):
        if match := DOCUMENT.search(line):
            document = match[1]
        found = SEGMENT.findall(line)
        if len(found) > 1 or len(SEGMENT_START.findall(line)) != len(found):
            raise UserError(f'{name}:{number}: expected at most one segment in a line, <seg id="NUMBER">…</seg>')
        for identifier, text in found:
            yield Segment(document, int(identifier), text)


def read_iwslt14_segments(lines: Iterable[str], name: str) -> Iterator[Segment]:
    """Yield the segments of an evaluation set of IWSLT14.

    As in fairseq's recipe, typographic apostrophes are replaced here but not in the training text.
    """
    return (segment._replace(text=segment.text.replace("’", "'")) for segment in read_segments(lines, name))


MISALIGNED_TALK, MISALIGNED_NUMBERS = "D06", range(71, 143)
"""The segments of TEDX.dev2012 that are misaligned by one line (fairseq issue 4146)."""


def is_misaligned(segment: Segment) -> bool:
    """Return whether a segment of TEDX.dev2012 is not a translation of the other side."""
    return segment.document == MISALIGNED_TALK and segment.number in MISALIGNED_NUMBERS


FORMS: dict[str, Callable[[Iterable[str], str], Iterator[Segment]]] = {
    "plain": partial(read_marked, markup=()),
    "marked": read_marked,
    "running": read_running,
    "talks": read_talks,
    "segments": read_segments,
    "iwslt14_segments": read_iwslt14_segments,
}
"""Form of a text → what reads its lines; it is called with the lines and the name for messages."""


@dataclass(frozen=True)
class PublishedText:
    """One side of a parallel text as it is published: a file, a member of an archive, or a column of either.

    Attributes:
        source: the published file.
        member: path inside it if it is an archive; with * if there are several texts. Empty if the file is the text.
        separator: what separates source and target if a line holds both.
        column: which column of such a line is this side.
        form: a key of FORMS.
        first: number of lines to read; None for all.
    """

    source: Source
    member: str = ""
    separator: str | None = None
    column: int = 0
    form: str = "plain"
    first: int | None = None

    @property
    def path(self) -> Path:
        """The path to show in messages."""
        return Path(self.source.name) / self.member

    def fetch(self, raw: Path) -> Path:
        """Return the file in `raw` that holds the text, downloaded unless it is there."""
        return fetch(self.source, raw)

    def lines(self, raw: Path) -> Iterator[str]:
        """Yield the lines of the text; raise `UserError` if a line should have two columns and does not."""
        path = raw / self.source.name
        for number, line in enumerate(read_member(path, self.member) if self.member else read_lines(path), start=1):
            columns = line.split(self.separator) if self.separator else [line, line]
            if len(columns) != 2:
                raise UserError(f"{self.path}:{number}: {len(columns)} columns, expected two with {self.separator!r}")
            yield columns[self.column]

    def segments(self, raw: Path) -> Iterator[Segment]:
        """Yield the segments of the text."""
        return FORMS[self.form](islice(self.lines(raw), self.first), str(self.path))


ParallelText = tuple[PublishedText, PublishedText]  # source and target


def copy_texts(texts: Sequence[ParallelText], raw: Path, outputs: PathPair) -> list[int]:
    """Append the normalized segments of parallel texts to the files `outputs`; return the lengths of the documents.

    Where segments were left out, a new document begins.

    Raises:
        UserError: a side is empty or has not the form that it should have, or the sides differ in length.
    """
    lengths: list[int] = []
    for pair in texts:
        documents: list[list[int]] = []  # by side
        with progress_step(f"read {pair[0].path}") as advance:
            for text, output in zip(pair, outputs, strict=True):
                documents.append([])
                follower: tuple[str, int] | None = None
                with open_text(output, "a") as file:
                    for segment in text.segments(raw):
                        if (segment.document, segment.number) != follower:
                            documents[-1].append(0)
                        documents[-1][-1] += 1
                        follower = segment.document, segment.number + 1
                        file.write(normalize_line(segment.text) + "\n")
                        advance(1)
        check_line_counts((pair[0].path, pair[1].path), list(map(sum, documents)))
        lengths += documents[0]
    return lengths
