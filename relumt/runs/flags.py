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
    """Return the flags in an *.args file; see `parse_flag_lines`.

    Raises:
        UserError: the file is missing, a quote is left open, or a line begins with a value.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; the flags of a model are read from it") from None
    return parse_flag_lines(text, str(path))


def parse_flag_lines(text: str, where: str) -> Flags:
    """Parse lines of one or several flags, quoted as in a shell; `#` starts a comment.

    where: origin of the text, for error messages.

    Raises:
        UserError: a quote is left open, or a line begins with a value.
    """
    flags: Flags = {}
    for number, line in enumerate(text.splitlines(), start=1):
        try:
            tokens = shlex.split(line, comments=True)
        except ValueError as error:
            raise UserError(f"{where}:{number}: {error}; close the quotation") from None
        flags |= parse_flags(tokens, f"{where}:{number}")
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
