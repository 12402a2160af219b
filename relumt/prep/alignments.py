"""Word alignments by hand beside a text P, and their copy beside the data-bin's texts.

P.align and P.SRC-TGT.align have the source's word first; P.TGT-SRC.align, of a text that is translated the other way
here, has the target's, and is turned.
"""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from relumt.errors import UserError
from relumt.prep.lines import write_lines

if TYPE_CHECKING:
    from relumt.analysis.alignment import Gold


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


def keep_alignments(path: Path, languages: tuple[str, str], kept: Path) -> None:
    """Copy alignments to `kept`, the source's word first."""
    from relumt.analysis.alignment import read_alignments

    if is_turned(path, languages):
        write_lines(kept, (turned(gold) for gold in read_alignments(path, 0)))
    else:
        shutil.copyfile(path, kept)


def turned(gold: "Gold") -> str:
    """One pair's links, the target's word first, as a line: 2-1, or 2p1 for a possible one."""
    links = sorted((target, source, "-" if (source, target) in gold.sure else "p") for source, target in gold.possible)
    return " ".join(f"{target}{kind}{source}" for target, source, kind in links)


def pairs_of(path: Path) -> int:
    """How many sentence pairs a file of alignments is of; raises UserError for what is none."""
    from relumt.analysis.alignment import read_alignments

    return len(read_alignments(path, 0))
