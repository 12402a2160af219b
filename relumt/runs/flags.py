"""Flags of fairseq commands: parse them, merge them, and turn them back into a command line.

`Flags` maps a flag (`--lr`) to its values (`["1e-3"]`, or `[]` for a switch).
"""

import re
import shlex
from collections.abc import Iterable, Mapping

from relumt.errors import UNPRINTABLE, UserError

Flags = dict[str, list[str]]

MECHANISM_FLAGS = (
    r"attention(-encoder|-decoder|-cross|-gate)?|feedforward(-encoder|-decoder)?"
    r"|(relu|inhibitor|memory|gated)-(?!dropout).*|no-memory-bias"
)
"""Pattern of the flags, without leading hyphens, that select attention and feed-forward variants and their options."""

TRACKER_FLAGS = ("--wandb-project", "--aim-repo", "--aim-run-hash")
"""Flags of fairseq-train that only copy the log elsewhere (docs/tracking.md)."""

NEGATIVE_NUMBER = re.compile(r"-\.?\d[\d.e+-]*")


def parse_flag_lines(text: str, where: str) -> Flags:
    """Parse lines with one or several flags, quoted as in a shell; `#` starts a comment.

    Args:
        text: the lines.
        where: their origin, for error messages.

    Raises:
        UserError: a quotation is not closed, or a line is not as `parse_flags` expects.
    """
    flags: Flags = {}
    for number, line in enumerate(text.splitlines(), start=1):
        try:
            tokens = shlex.split(line, comments=True)
        except ValueError as error:
            raise UserError(f"{where}:{number}: {error}; close the quotation") from None
        for name, values in parse_flags(tokens, f"{where}:{number}").items():
            _add_flag(flags, name, values, f"{where}:{number}")
    return flags


def parse_flags(tokens: Iterable[str], where: str) -> Flags:
    """Group the tokens of a command line into flags and their values.

    Args:
        tokens: flags and values.
        where: their origin, for error messages.

    Raises:
        UserError: the first token is a value, a token is empty or contains control characters or bytes that are not
            UTF-8, or a flag is given twice with different values.
    """
    pairs: list[tuple[str, list[str]]] = []
    for token in tokens:
        if UNPRINTABLE.search(token):
            raise UserError(
                f"{where}: {token!r} contains a line break, another control character or bytes that are not UTF-8; "
                "remove them"
            )
        if token == "" or (token.startswith("-") and token.endswith("=")):
            raise UserError(
                f"{where}: empty value after {pairs[-1][0] if not token and pairs else repr(token)}; give one"
            )
        if token.startswith("-") and not NEGATIVE_NUMBER.fullmatch(token):
            name, equals, value = token.partition("=")
            pairs.append((name, [value] if equals else []))
        elif not pairs:
            raise UserError(
                f"{where}: expected a flag that begins with --, found {token!r}; put values after their flag"
            )
        else:
            pairs[-1][1].append(token)
    flags: Flags = {}
    for name, values in pairs:
        _add_flag(flags, name, values, where)
    return flags


def _add_flag(flags: Flags, name: str, values: list[str], where: str) -> None:
    """Add a flag; raise UserError if it is there already with other values."""
    if flags.setdefault(name, values) != values:
        found = " and ".join(repr(" ".join(given)) for given in (flags[name], values))
        raise UserError(f"{where}: {name} is given twice, as {found}; give it once")


def command_line(flags: Mapping[str, list[str]]) -> list[str]:
    """Return the flags as arguments of a command."""
    return [token for name, values in flags.items() for token in (name, *values)]


def join_flag_values(flags: Flags) -> dict[str, str]:
    """Join the values of each flag with spaces, as run.json stores them; a switch has the value "".

    Flags of trackers are left out: a training that is also watched elsewhere is the same training.
    """
    return {name: " ".join(values) for name, values in flags.items() if name not in TRACKER_FLAGS}
