"""The side file P.subsets.json: smaller sets within a test set, which are scored beside it from the same translations."""

import json
from pathlib import Path

from relumt.errors import UserError

Subsets = dict[str, list[int]]  # name -> numbers of the lines that it leaves out, from 0


def subsets_path(prefix: str) -> Path:
    """Where the parts of the text `prefix` would be described."""
    return Path(f"{prefix}.subsets.json")


def write_subsets(path: Path, parts: Subsets) -> None:
    """Write the parts."""
    path.write_text(json.dumps(parts, ensure_ascii=False, indent=None) + "\n", encoding="utf-8")


def read_subsets(path: Path, lines: int) -> Subsets:
    """The parts of a text of so many lines, none where there is no such file.

    Raises:
        UserError: it does not fit the text.
    """
    if not path.is_file():
        return {}
    try:
        parts = json.loads(path.read_text(encoding="utf-8"))
        fits = all(0 <= line < lines for left_out in parts.values() for line in left_out)
    except (ValueError, TypeError, AttributeError):
        fits = False
    if not fits:
        raise UserError(f"{path}: not the parts of a text of {lines} lines; correct or remove it")
    return parts
