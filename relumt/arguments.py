"""Command-line arguments: a parser that reports errors on one line, and types that check a value before work starts.

Each type takes the text on the command line and raises `argparse.ArgumentTypeError`, which says what is expected.
"""

import argparse
import math
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NoReturn

from relumt.errors import UserError

MAX_INTEGER = 2**31 - 1
"""The largest number that every library takes as a size or a random seed, to which fairseq adds the epoch."""

MAX_SHOWN = 40
"""Characters of a refused value that are printed."""

INTEGER = re.compile(r"\d{1,10}", re.ASCII)
DECIMAL = re.compile(r"-?(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)


class ArgumentParser(argparse.ArgumentParser):
    """A parser that reports invalid arguments like any other error of a user, without the usage."""

    def error(self, message: str) -> NoReturn:
        """Raise UserError."""
        raise UserError(f"{message}; see {self.prog} --help")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse arguments like argparse, but refuse --option=--, for which argparse returns an empty list."""
        for argument in sys.argv[1:] if args is None else args:
            if argument.startswith("--") and argument.endswith("=--"):
                self.error(f"argument {argument.removesuffix('=--')}: expected one argument")
        return super().parse_known_args(args, namespace)


def positive_integer(text: str) -> int:
    """Parse a whole number from 1."""
    if not INTEGER.fullmatch(text) or not 1 <= int(text) <= MAX_INTEGER:
        raise _invalid(f"a whole number from 1 to {MAX_INTEGER}", text)
    return int(text)


def whole_number(text: str) -> int:
    """Parse a whole number from 0."""
    if not INTEGER.fullmatch(text) or int(text) > MAX_INTEGER:
        raise _invalid(f"a whole number from 0 to {MAX_INTEGER}", text)
    return int(text)


def given_flags(
    arguments: argparse.Namespace, names: Iterable[str], add_arguments: Callable[[argparse.ArgumentParser], None]
) -> list[str]:
    """Return the flags whose values are not their defaults.

    Args:
        arguments: the parsed arguments.
        names: the attributes to look at.
        add_arguments: adds the arguments, with their defaults, to a parser.
    """
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    changed = (name for name in names if getattr(arguments, name) != parser.get_default(name))
    return [f"--{name.replace('_', '-')}" for name in changed]


def finite_number(text: str) -> float:
    """Parse a number that is neither infinite nor NaN."""
    if not DECIMAL.fullmatch(text) or not math.isfinite(number := float(text)):
        raise _invalid("a finite number", text)
    return number


def share(text: str) -> float:
    """Parse a number from 0 to 1."""
    number = finite_number(text)
    if not 0 <= number <= 1:
        raise _invalid("a number from 0 to 1", text)
    return number


def positive_share(text: str) -> float:
    """Parse a number above 0 and at most 1."""
    number = finite_number(text)
    if not 0 < number <= 1:
        raise _invalid("a number above 0 and at most 1", text)
    return number


def valid_path(text: str) -> Path:
    """Return a path, but not for "", an unset variable of a shell, which would be the working folder."""
    if not text or "\0" in text:
        raise _invalid("a path", text)
    if text == "~" or text.startswith("~/"):
        raise _invalid("a path without ~, which the shell did not replace after =", text)
    return Path(text)


def _invalid(expected: str, text: str) -> argparse.ArgumentTypeError:
    shown = text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"
    return argparse.ArgumentTypeError(f"expected {expected}, found '{shown}'")
