"""Errors that a user can cause: one line on stderr (what, where, what to do) and exit status 2."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager


class UserError(Exception):
    """Something the user gave cannot work; the message is one line that says what, where and what to do."""


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Turn a `UserError` raised inside the block, or a file that cannot be used, into one line and exit status 2."""
    try:
        yield
    except BrokenPipeError:  # whoever reads the output has enough of it
        raise
    except UserError as error:
        print(f"relumt: error: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except OSError as error:
        where = f"{error.filename}: " if error.filename is not None else ""
        print(f"relumt: error: {where}{error.strerror or error}", file=sys.stderr)
        raise SystemExit(2) from None
