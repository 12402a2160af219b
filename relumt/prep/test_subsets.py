"""P.subsets.json: subsets of a test set, which are scored in addition to it, from the same translations."""

import json
from pathlib import Path

from relumt.errors import UserError

Subsets = dict[str, list[int]]  # name -> numbers of the excluded lines, from 0


def subsets_path(prefix: str) -> Path:
    """Return the path of the file that may describe subsets of the text `prefix`."""
    return Path(f"{prefix}.subsets.json")


def write_subsets(path: Path, subsets: Subsets) -> None:
    """Write the subsets of a test set."""
    path.write_text(json.dumps(subsets, ensure_ascii=False) + "\n", encoding="utf-8")


def read_subsets(path: Path, num_lines: int) -> Subsets:
    """Return the subsets of a text of `num_lines` lines, none if there is no such file.

    Raises:
        UserError: the file is malformed or excludes a line that the text does not have.
    """
    if not path.is_file():
        return {}
    try:
        subsets = json.loads(path.read_text(encoding="utf-8"))
        is_valid = all(0 <= line < num_lines for excluded in subsets.values() for line in excluded)
    except (ValueError, TypeError, AttributeError):
        is_valid = False
    if not is_valid:
        raise UserError(
            f"{path}: expected {{name: [excluded lines]}} for a text of {num_lines} lines; fix or remove it"
        )
    return subsets
