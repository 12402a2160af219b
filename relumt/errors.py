"""Messages to the user on stderr: status, progress, and errors that a user can cause.

Such an error is one line; the exit status is 2, or 1 if something was tried and failed.
"""

import errno
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters, line separators, changes of the writing direction, and bytes of file names that are not UTF-8."""

EXHAUSTED = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "free some disk space, or memory in /dev/shm"),
    **dict.fromkeys((errno.EMFILE, errno.ENFILE), "allow more open files (ulimit -n)"),
}
"""What to do if the machine has no more of something."""

OUT_OF_MEMORY = re.compile("OutOfMemoryError|RuntimeError: .*DefaultCPUAllocator: can't allocate memory", re.DOTALL)
"""How torch reports it, on a GPU and on the CPU. Importing torch to compare types would take seconds."""

MAX_FILE_NAME, MAX_QUOTED = 300, 60
"""Characters of a file name, and of other text from the user's files, that are printed."""


class UserError(Exception):
    """The user's input cannot be used; the one-line message says what is wrong, where, and what to do."""

    exit_status = 2


class AttemptFailedError(UserError):
    """Something was tried and failed, for reasons other than the request; the message says what to do."""

    exit_status = 1


def describe_error(error: BaseException) -> str:
    """Return the type and the first line of an error."""
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:300]}"


@contextmanager
def exit_on_user_error() -> Iterator[None]:
    """Turn an error that a user can cause into one line on stderr and an exit status, 1 or 2."""
    try:
        yield
    except BrokenPipeError:  # the reader of stdout closed it early, as `head` does
        raise
    except Exception as error:
        problem = as_user_error(error)
        if problem is None:
            raise
        print(f"relumt: error: {printable(str(problem))}", file=sys.stderr)
        raise SystemExit(problem.exit_status) from None


def as_user_error(error: Exception) -> UserError | None:
    """Return an error as a UserError with a one-line message; None if it is no error that a user can cause."""
    if isinstance(error, UserError):
        return error
    if isinstance(error, MemoryError) or OUT_OF_MEMORY.match(f"{type(error).__name__}: {error}"):
        return AttemptFailedError("out of memory; use smaller batches, or a machine with more memory")
    if not isinstance(error, OSError):
        return None
    name = "" if error.filename is None else f"{str(error.filename)[:MAX_FILE_NAME]}: "
    message = f"{name}{error.strerror or error}"
    if error.errno in EXHAUSTED:
        return AttemptFailedError(f"{message}; {EXHAUSTED[error.errno]}")
    return UserError(f"{message}; check the path")


def printable(text: str) -> str:
    """Return the text on one line, with escape sequences such as \\n for characters that could mislead a reader."""
    return UNPRINTABLE.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)


def quote(text: str) -> str:
    """Return a text for a message: quoted, with escape sequences, and not too long."""
    return repr(text if len(text) <= MAX_QUOTED else f"{text[:MAX_QUOTED]}…")


def print_status(message: str) -> None:
    """Print a message of one line to stderr; stdout is reserved for results."""
    print(f"relumt: {printable(message)}", file=sys.stderr)


def duration(seconds: float) -> str:
    """Return a duration in words, such as "1 h 05 min"."""
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{minutes // 60} h {minutes % 60:02} min" if minutes >= 60 else f"{minutes} min"
