"""P.subsets.json: subsets of a test set, which are scored in addition to it, from the same translations."""

import json
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from relumt.errors import UserError, printable
from relumt.files import optional_file
from relumt.json_files import read_json

Subsets = dict[str, list[int]]  # name -> numbers of the excluded lines, from 0
FileFormat = dict[Annotated[str, Meta(min_length=1, max_length=200)], list[Annotated[int, Meta(ge=0)]]]

FORMER_SUFFIX = ".parts.json"


def subsets_path(prefix: str) -> Path:
    """Return the path of the file that may describe subsets of the text `prefix`.

    Raises:
        UserError: there is a file with the name that this one had in older versions.
    """
    path, former = Path(f"{prefix}.subsets.json"), Path(f"{prefix}{FORMER_SUFFIX}")
    if former.exists() and not path.exists():
        raise UserError(f"{former}: this file is now named {path.name}; rename it")
    return path


def write_subsets(path: Path, subsets: Subsets) -> None:
    """Write the subsets of a test set."""
    path.write_text(json.dumps(subsets, ensure_ascii=False) + "\n", encoding="utf-8")


def read_subsets(path: Path, num_lines: int) -> Subsets:
    """Return the subsets of a text of `num_lines` lines, none if there is no such file.

    Raises:
        UserError: the file is malformed or has a name twice, or excludes a line that the text does not have, or all.
    """
    if optional_file(path) is None:
        return {}
    advice = f"write {{name: [excluded lines]}} for a text of {num_lines} lines, numbered from 0, or remove the file"
    subsets = read_json(path, FileFormat, advice)
    names = [name for name, _ in json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=list)]
    if len(names) > len(subsets):
        repeated = next(name for number, name in enumerate(names) if name in names[:number])
        raise UserError(f"{path}: has the name {repeated!r} twice; {advice}")
    for name, excluded in subsets.items():
        if printable(name) != name or name != name.strip():
            raise UserError(f"{path}: the name {name!r} has control characters or spaces around it; {advice}")
        if max(excluded, default=0) >= num_lines:
            raise UserError(f"{path}: {name!r} excludes line {max(excluded)}; {advice}")
        if len(set(excluded)) == num_lines:
            raise UserError(f"{path}: {name!r} excludes every line; {advice}")
    return subsets
