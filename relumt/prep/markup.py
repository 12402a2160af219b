"""Documents that are marked inside the text: lines of markup among the sentences, the same on both sides."""

import re
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from relumt.errors import UserError
from relumt.text_files import open_text, read_clean_lines


@dataclass(frozen=True)
class Markup:
    """A kind of markup: which lines are no text, and which of them open a document."""

    line: re.Pattern[str]
    opens: re.Pattern[str]


MARKUPS = {
    "d": Markup(re.compile(r"<d>"), re.compile(r"<d>")),
    "europarl": Markup(re.compile(r"<(CHAPTER|SPEAKER|P)\b.*>"), re.compile(r"<CHAPTER\b")),
}
"""d: a line <d> before each document (Maruf et al. 2019). europarl: the release's own, a chapter a document."""


def take_out(
    kind: str, texts: tuple[Path, Path], outputs: tuple[Path, Path], originals: tuple[Path, Path]
) -> tuple[int, list[int]]:
    """Write the two sides of a text without their markup.

    Args:
        kind: a key of MARKUPS.
        texts: the sides, normalised.
        outputs: where the sentences go.
        originals: the user's files, for errors.

    Returns:
        Number of sentences, and the lengths of the documents.

    Raises:
        UserError: a line is markup on one side alone, or a sentence stands before the first document.
    """
    markup = MARKUPS[kind]
    lengths: list[int] = []
    with open_text(outputs[0], "w") as source_output, open_text(outputs[1], "w") as target_output:
        pairs = zip_longest(*map(read_clean_lines, texts), fillvalue="")
        for number, (source, target) in enumerate(pairs, start=1):
            marked = [bool(markup.line.fullmatch(side)) for side in (source, target)]
            if marked[0] != marked[1]:
                where = originals[marked.index(True)]
                raise UserError(f"{where}:{number}: markup of documents that the other side lacks; check the alignment")
            if marked[0]:
                if markup.opens.match(source):
                    lengths.append(0)
                continue
            if not lengths:
                raise UserError(
                    f"{originals[0]}:{number}: a sentence before the first document; is it --documents {kind}?"
                )
            lengths[-1] += 1
            source_output.write(source + "\n")
            target_output.write(target + "\n")
    return sum(lengths), [length for length in lengths if length]
