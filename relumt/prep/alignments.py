"""Word alignments by hand beside a text P, and what is kept of them beside the data-bin's texts.

P.align and P.SRC-TGT.align have the source's word first; P.TGT-SRC.align, of a text that is translated the other way
here, has the target's, and is turned.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from relumt.errors import UserError
from relumt.text_files import write_lines

if TYPE_CHECKING:
    from relumt.metrics.alignment import GoldAlignment


def alignments_path(prefix: str, languages: tuple[str, str]) -> Path | None:
    """The alignments of the text P, None if there are none; raises UserError where there are several."""
    source, target = languages
    names = (f"{prefix}.align", f"{prefix}.{source}-{target}.align", f"{prefix}.{target}-{source}.align")
    found = [path for path in map(Path, names) if path.is_file()]
    if len(found) > 1:
        raise UserError(f"{found[0]} and {found[1]}: alignments of one text; remove one")
    return found[0] if found else None


def is_turned(path: Path, languages: tuple[str, str]) -> bool:
    """Whether a file that `alignments_path` found has the target's word first."""
    source, target = languages
    return path.name.endswith(f".{target}-{source}.align")


def check_alignments(path: Path) -> None:
    """Raise UserError for a file that holds no alignments."""
    from relumt.metrics.alignment import read_alignments

    read_alignments(path, 0)


def keep_alignments(path: Path, languages: tuple[str, str], kept: Path, pairs: int) -> None:
    """Write alignments of so many pairs to `kept`, a pair a line, the source's word first.

    Raises:
        UserError: they are of another number of pairs.
    """
    from relumt.metrics.alignment import read_alignments

    every = read_alignments(path, 0, pairs)
    if len(every) != pairs:
        raise UserError(f"{path} has {len(every)} alignments, but the text {pairs} pairs; correct or remove it")
    write_lines(kept, (as_line(gold.swap_sides() if is_turned(path, languages) else gold) for gold in every))


def as_line(gold: "GoldAlignment") -> str:
    """One pair's links, the source's word first: 1-2, or 1p2 for a possible one."""
    return " ".join(f"{s}{'-' if (s, t) in gold.sure else 'p'}{t}" for s, t in sorted(gold.possible))
