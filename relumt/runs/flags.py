"""Flags of fairseq commands: parse them, turn them back into a command line, compare them. Also: which names are valid.

`Flags` maps a flag (`--lr`) to its values (`["1e-3"]`, or `[]` for a switch).
"""

import re
import shlex
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from relumt.errors import UNPRINTABLE, UserError, quote

Flags = dict[str, list[str]]

MECHANISM_FLAGS = (
    r"attention(-encoder|-decoder|-cross|-gate|-qk-norm|-softmax-epochs)?|feedforward(-encoder|-decoder)?"
    r"|(relu|inhibitor|memory|gated)-(?!dropout).*|no-memory-bias"
)
"""Pattern of the flags, without leading hyphens, that select attention and feed-forward variants and their options."""

TRACKER_FLAGS = ("--wandb-project", "--aim-repo", "--aim-run-hash")
"""Flags of fairseq-train that only copy the log elsewhere (docs/training.md)."""

NEGATIVE_NUMBER = re.compile(r"-\.?\d[\d.e+-]*")

Facts = Mapping[str, object]
"""What decides a result: flags with their values, and other facts by the name that messages give them."""

NAME = r"\A(?![-.])[^/:\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]+\Z"
"""Pattern of the name of a dataset, a model or a file in a run's folder. fairseq splits paths at colons."""

SUBSET = r"\A[A-Za-z0-9][A-Za-z0-9_-]{0,63}\Z"
"""Pattern of the name of a subset of a data-bin: "train", "valid", "test", "test1"."""

Name = Annotated[str, Meta(pattern=NAME)]
Subset = Annotated[str, Meta(pattern=SUBSET)]
Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
NonNegative = Annotated[float, Meta(ge=0)]


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
        UserError: the first token is a value, a token contains control characters or bytes that are not
            UTF-8, or a flag is given twice with different values.
    """
    pairs: list[tuple[str, list[str]]] = []
    for token in tokens:
        if UNPRINTABLE.search(token):
            raise UserError(
                f"{where}: {token!r} contains a line break, another control character or bytes that are not UTF-8; "
                "remove them"
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


def format_flag(flags: Mapping[str, object], name: str) -> str:
    """Format the flag `name` as on a command line, or as "no --name" if it is not given."""
    return f"{name} {flags[name]}".rstrip() if name in flags else f"no {name}"


def differences(recorded: Facts, current: Facts) -> list[str]:
    """Return what differs, each as a short phrase; [] if the recorded result is the one that would be computed now.

    A flag that is missing is not given. Other facts that are missing now are unknown, such as the checksum of a deleted
    checkpoint, and cannot differ.
    """
    flags = [name for name in dict.fromkeys([*recorded, *current]) if name.startswith("-")]
    others = [name for name in current if not name.startswith("-")]
    return [
        f"{format_flag(recorded, name)} (now {format_flag(current, name)})"
        if name in flags
        else f"{name} {recorded.get(name) or 'none'} (now {current[name] or 'none'})"
        for name in (*flags, *others)
        if recorded.get(name) != current.get(name)
    ]


def is_name(name: str) -> bool:
    """Return whether `name` can be the name of a dataset or a model, and not only a path."""
    return bool(re.match(NAME, name))


def require_name(name: str, what: str) -> None:
    """Raise UserError unless `name` can be the name of a dataset or a model; `what` says what it names."""
    if not is_name(name):
        raise UserError(
            f"{what} {quote(name)}: expected a name without '/', ':' and control characters that does not begin with "
            "'-' or '.'; rename it"
        )


def require_path(path: Path, what: str) -> None:
    """Raise UserError if the scripts or fairseq could not take `path` as one argument; `what` says what it is."""
    if UNPRINTABLE.search(str(path)) or ":" in str(path):
        raise UserError(
            f"{what} {quote(str(path))}: expected a path without ':', line breaks and other control characters; "
            "rename the folder"
        )


def list_known(name: str, known: Iterable[str]) -> str:
    """Return the end of an error message: the most similar known name, if there is one, and all known names."""
    names = list(known)
    similar = get_close_matches(name, names, n=1)
    suggestion = f"did you mean {similar[0]}? " if similar else ""
    return f"{suggestion}known: {', '.join(names) or 'none'}"
