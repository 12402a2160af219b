"""The files of the IWSLT and WMT evaluations: talks or articles with their markup, one sentence a line."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from relumt.errors import UserError
from relumt.text_files import read_lines

TALK = re.compile(r'<doc\b[^>]*\bdocid="([^"]*)"', re.IGNORECASE)
SEGMENT = re.compile(r'<seg id="(\d+)">\s*(.*?)\s*</seg>', re.IGNORECASE)
SPOKEN_OF = re.compile(r"</?(?:title|description)>")
ABOUT = ("<url>", "<talkid>", "<keywords>")
"""Beginnings of the lines of a training file that are no text; the first opens a talk."""


@dataclass(frozen=True)
class Segment:
    """A sentence of an evaluation set: the talk that it is of, its number in it from 1, and its text."""

    talk: str
    number: int
    text: str


def read_evaluation(path: Path) -> list[Segment]:
    """The segments of an evaluation set's XML, gzipped or not; raises UserError if there are none."""
    return segments_in(read_lines(path), str(path))


def segments_in(lines: Iterable[str], name: str) -> list[Segment]:
    """The segments in the lines of an evaluation set, XML or SGML; raises UserError if there are none."""
    segments, talk = [], ""
    for line in lines:
        if match := TALK.search(line):
            talk = match[1]
        if match := SEGMENT.search(line):
            segments.append(Segment(talk, int(match[1]), match[2]))
    if not segments:
        raise UserError(f"{name}: no <seg id=…> in it; give the XML of the evaluation")
    return segments


def lengths_by_talk(segments: Sequence[Segment]) -> list[int]:
    """Lengths of the documents: a talk each, and where segments were left out of one, a part of it each."""
    lengths: list[int] = []
    before = None
    for segment in segments:
        if before is None or (segment.talk, segment.number) != (before.talk, before.number + 1):
            lengths.append(0)
        lengths[-1] += 1
        before = segment
    return lengths


def read_training(path: Path) -> Iterator[tuple[bool, str]]:
    """The lines of a training file (train.tags…), each with whether it is the first of its talk.

    Titles and descriptions are text, as fairseq's recipe has it; addresses, numbers and keywords are not.
    """
    first = True
    for line in read_lines(path):
        if line.startswith(ABOUT):
            first = first or line.startswith(ABOUT[0])
            continue
        yield first, SPOKEN_OF.sub("", line.removesuffix("\n"))
        first = False
