"""Errors that a user can cause: one line on stderr (what, where, what to do) and exit status 2."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager


class UserError(Exception):
    """Something the user gave cannot work; the message is one line that says what, where and what to do."""


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Turn a `UserError` raised inside the block into its one line on stderr and exit status 2."""
    try:
        yield
    except UserError as error:
        print(f"relumt: error: {error}", file=sys.stderr)
        raise SystemExit(2) from None
