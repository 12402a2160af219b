"""Command-line arguments: a parser that reports errors on one line, and types of numbers that have a range."""

import argparse
import math
from typing import NoReturn

from relumt.errors import UserError


class ArgumentParser(argparse.ArgumentParser):
    """A parser that reports invalid arguments like any other error of a user, without the usage."""

    def error(self, message: str) -> NoReturn:
        """Raise UserError."""
        raise UserError(f"{message}; see {self.prog} --help")


def whole_number(text: str, at_least: int = 0) -> int:
    """Parse a whole number from 0; raise ArgumentTypeError for anything else, as the other types do."""
    if not text.isdecimal() or int(text) < at_least:
        raise argparse.ArgumentTypeError(f"expected a whole number from {at_least}, found '{text}'")
    return int(text)


def positive_integer(text: str) -> int:
    """Parse a whole number from 1."""
    return whole_number(text, at_least=1)


def finite_number(text: str) -> float:
    """Parse a number that is neither infinite nor NaN."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise argparse.ArgumentTypeError(f"expected a finite number, found '{text}'")
    return number


def share(text: str) -> float:
    """Parse a number from 0 to 1."""
    number = finite_number(text)
    if not 0 <= number <= 1:
        raise argparse.ArgumentTypeError(f"expected a number from 0 to 1, found '{text}'")
    return number
