"""Evaluation sets of IWSLT and WMT: SGML or XML with documents (talks, articles) and one segment per line."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from relumt.errors import UserError

DOCUMENT = re.compile(r'<doc\b[^>]*\bdocid="([^"]*)"', re.IGNORECASE)
SEGMENT_START = re.compile(r"<seg\b", re.IGNORECASE)
SEGMENT = re.compile(r'<seg id="(\d+)">\s*(.*?)\s*</seg>', re.IGNORECASE)


@dataclass(frozen=True)
class Segment:
    """A sentence of an evaluation set.

    Attributes:
        document: identifier of its document.
        number: its number in the document, from 1.
        text: the sentence.
    """

    document: str
    number: int
    text: str


def parse_segments(lines: Iterable[str], name: str) -> list[Segment]:
    """Return the segments of the evaluation set `name`; raise `UserError` if it has none, or not one per line."""
    segments, document = [], ""
    for number, line in enumerate(lines, start=1):
        if match := DOCUMENT.search(line):
            document = match[1]
        found = SEGMENT.findall(line)
        num_begun = len(SEGMENT_START.findall(line))
        if num_begun > 1 or num_begun != len(found):
            raise UserError(f'{name}:{number}: expected at most one segment in a line, <seg id="NUMBER">…</seg>')
        segments += [Segment(document, int(identifier), text) for identifier, text in found]
    if not segments:
        raise UserError(f"{name}: found no <seg id=…>; expected an evaluation set of IWSLT or WMT")
    return segments


def document_lengths(segments: Sequence[Segment]) -> list[int]:
    """Return the number of segments of each document. Where segments were left out, a new document begins."""
    lengths: list[int] = []
    previous = None
    for segment in segments:
        if previous is None or (segment.document, segment.number) != (previous.document, previous.number + 1):
            lengths.append(0)
        lengths[-1] += 1
        previous = segment
    return lengths
