"""Errors that a user can cause: one line on stderr and exit status 2."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager


class UserError(Exception):
    """The user's input cannot be used; the one-line message says what is wrong, where, and what to do."""


@contextmanager
def exit_on_user_error() -> Iterator[None]:
    """Turn a `UserError` or `OSError` raised inside the block into one line on stderr and exit status 2."""
    try:
        yield
    except BrokenPipeError:  # the reader of stdout closed it early, as `head` does
        raise
    except (UserError, OSError) as error:
        message = str(error)
        if isinstance(error, OSError) and error.filename is not None and error.strerror:
            message = f"{error.filename}: {error.strerror}"
        print(f"relumt: error: {message}", file=sys.stderr)
        raise SystemExit(2) from None
