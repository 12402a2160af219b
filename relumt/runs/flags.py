"""Flat fairseq flags: reading them from *.args files, merging them, turning them back into a command line.

A set of flags is a mapping from the flag's name (`--lr`) to its values (`["1e-3"]`, or `[]` for a switch).
Where a flag is given twice the later one wins, as it does in fairseq.
"""

import re
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path

from relumt.errors import UserError

Flags = dict[str, list[str]]

OF_MECHANISMS = (
    r"attention(-encoder|-decoder|-cross)?|feedforward(-encoder|-decoder)?"
    r"|(relu|inhibitor|memory|gated)-(?!dropout).*|no-memory-bias"
)
"""Pattern of the flags, without their hyphens, that choose a mechanism and set it."""

NEGATIVE_NUMBER = re.compile(r"-\.?\d[\d.e+-]*")


def read_flags(path: Path) -> Flags:
    """The flags in an args file: one or several a line, quoted as in a shell, `#` opens a comment.

    A line `@FILE` stands for the flags in FILE, a path from this file's folder.

    Raises:
        UserError: the file is missing, a quote is left open, or a line begins with a value.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; a dataset's and a model's flags are read from it") from None
    flags: Flags = {}
    for number, line in enumerate(lines, start=1):
        where = f"{path}:{number}"
        if line.startswith("@"):
            flags |= read_flags(path.parent / line[1:].strip())
            continue
        try:
            tokens = shlex.split(line, comments=True)
        except ValueError as error:
            raise UserError(f"{where}: {error}; close the quotation") from None
        flags |= parse_flags(tokens, where)
    return flags


def parse_flags(tokens: Iterable[str], where: str) -> Flags:
    """Group a flat command line into flags and their values; `where` names its origin in an error.

    Raises:
        UserError: a value stands before any flag, or a value holds a line break.
    """
    flags: Flags = {}
    values: list[str] | None = None
    for token in tokens:
        if "\n" in token:
            raise UserError(f"{where}: {token!r} holds a line break; write it on one line")
        if token.startswith("-") and not NEGATIVE_NUMBER.fullmatch(token):
            name, equals, value = token.partition("=")
            flags[name] = values = [value] if equals else []
        elif values is None:
            raise UserError(f"{where}: {token!r} belongs to no flag; fairseq's flags begin with --")
        else:
            values.append(token)
    return flags


def command_line(flags: Mapping[str, list[str]]) -> list[str]:
    """The flags as the arguments of a command."""
    return [token for name, values in flags.items() for token in (name, *values)]


def readable(flags: Flags) -> dict[str, str]:
    """The flags for a record: each flag's values as one string, empty for a switch."""
    return {name: " ".join(values) for name, values in flags.items()}
