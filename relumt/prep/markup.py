"""Documents that are marked inside the text, by lines of markup that are the same on both sides."""

import re
from dataclasses import dataclass
from itertools import zip_longest

from relumt.errors import UserError
from relumt.prep.bitext import PathPair
from relumt.text_files import open_text, read_clean_lines


@dataclass(frozen=True)
class Markup:
    """A kind of markup.

    Attributes:
        line: matches a line of markup.
        document_start: matches a line of markup that begins a document.
    """

    line: re.Pattern[str]
    document_start: re.Pattern[str]


MARKUPS = {
    "d": Markup(re.compile(r"<d>"), re.compile(r"<d>")),
    "europarl": Markup(re.compile(r"<(CHAPTER|SPEAKER|P)\b.*>"), re.compile(r"<CHAPTER\b")),
}
"""d: a line <d> before each document (Maruf et al. 2019). europarl: as released; each chapter is a document."""


def remove_markup(kind: str, texts: PathPair, outputs: PathPair, originals: PathPair) -> list[int]:
    """Write both sides of a text without their markup.

    Args:
        kind: a key of MARKUPS.
        texts: the two sides, normalized.
        outputs: files for the sentences.
        originals: the user's files, for error messages.

    Returns:
        The number of sentences of each document that has any.

    Raises:
        UserError: a line is markup, or begins a document, on one side only; a sentence comes before the first document;
            or there is none.
    """
    markup = MARKUPS[kind]
    lengths: list[int] = []
    with open_text(outputs[0], "w") as source_output, open_text(outputs[1], "w") as target_output:
        pairs = zip_longest(*map(read_clean_lines, texts), fillvalue="")
        for number, (source, target) in enumerate(pairs, start=1):
            is_markup = [bool(markup.line.fullmatch(side)) for side in (source, target)]
            if is_markup[0] != is_markup[1]:
                where = originals[is_markup.index(True)]
                raise UserError(f"{where}:{number}: document markup that the other side lacks; check the alignment")
            if is_markup[0]:
                is_start = [bool(markup.document_start.match(side)) for side in (source, target)]
                if is_start[0] != is_start[1]:
                    raise UserError(f"{originals[0]}:{number}: one side begins a document here; check the alignment")
                if is_start[0]:
                    lengths.append(0)
                continue
            if not lengths:
                raise UserError(
                    f"{originals[0]}:{number}: sentence before the first document; is --documents {kind} right?"
                )
            lengths[-1] += 1
            source_output.write(source + "\n")
            target_output.write(target + "\n")
    if not any(lengths):
        raise UserError(f"{originals[0]}: no sentence besides document markup; expected one sentence per line")
    return [length for length in lengths if length]
