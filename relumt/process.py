"""How the `relumt` process ends on signals, and what it does about output that cannot be written."""

import codecs
import io
import os
import select
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from relumt.errors import UserError, exit_on_user_error

TERMINATING = (signal.SIGTERM, signal.SIGHUP)
"""Signals that end a process and, unlike SIGINT, raise no exception in Python by default."""

REPEAT_AFTER = 0.01
"""Seconds after which a signal is repeated; by then the callback that could not raise has returned."""


def usable_cores() -> int:
    """Return how many CPU cores this process may use; taskset, Slurm and containers can limit it to some."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def command_line() -> Iterator[None]:
    """Run the block as a command: errors exit with 1 or 2 (`relumt.errors`), signals with 128 + N; output is flushed.

    Raises:
        SystemExit: an error of the user or a signal ended the block.
    """
    with exit_on_signals(), exit_on_user_error():
        open_standard_streams()
        with flushed_output():
            yield


@contextmanager
def exit_on_signals() -> Iterator[None]:
    """Exit with status 128 + N after signal N, as shells report it, once the block has removed its temporary files.

    This holds for SIGINT (Ctrl-C), SIGTERM and SIGHUP; a closed pipe counts as SIGPIPE. A signal that the parent
    ignores, as nohup does, stays ignored.
    """

    received: list[int] = []

    def stop(number: int, _: FrameType | None) -> None:
        received.append(number)
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        for terminating in TERMINATING:
            signal.signal(terminating, signal.SIG_IGN)  # removing temporary files is not interrupted
        raise SystemExit(128 + number)

    def repeat(ignored: "sys.UnraisableHookArgs") -> None:
        """Send a signal again if Python ignored the exception, as it does in callbacks of imports and of `del`."""
        if received and isinstance(ignored.exc_value, KeyboardInterrupt | SystemExit):
            signal.signal(received[-1], stop)
            threading.Timer(REPEAT_AFTER, os.kill, (os.getpid(), received[-1])).start()
        else:
            show_ignored(ignored)

    previous: dict[int, Any] = {}
    show_ignored = sys.unraisablehook
    try:
        for number in (signal.SIGINT, *TERMINATING):
            if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
                previous[number] = signal.signal(number, stop)
        sys.unraisablehook = repeat
        yield
    except KeyboardInterrupt:
        raise SystemExit(128 + signal.SIGINT) from None
    except BrokenPipeError:  # the reader of stdout closed it early, as `head` does
        raise SystemExit(128 + signal.SIGPIPE) from None
    except Exception:
        if received:  # NumPy, for one, turns what is raised while it is imported into an ImportError
            raise SystemExit(128 + received[-1]) from None
        raise
    finally:
        sys.unraisablehook = show_ignored
        for handled, handler in previous.items():
            signal.signal(handled, handler)


def open_standard_streams() -> None:
    """Make all three standard streams usable.

    A stream that the parent closed is opened on /dev/null, because the next file would get its number and whatever is
    printed. Characters that the encoding of stdout lacks are printed as escape sequences such as \\u2192; bytes of file
    names that are not UTF-8 stay as they are.

    Raises:
        UserError: stdout is closed, so nobody would see the result.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    if sys.stdin is None:
        sys.stdin = os.fdopen(0, errors="surrogateescape", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", errors="backslashreplace", closefd=False)
    if sys.stdout is None:
        raise UserError("standard output is closed; redirect it to a file or to /dev/null")
    codecs.register_error("relumt", _escape_unencodable)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="relumt")


def has_no_reader(descriptor: int) -> bool:
    """Return whether a descriptor is a pipe or a terminal whose other end is closed."""
    poll = select.poll()
    poll.register(descriptor, 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


def print_in_utf8() -> None:
    """Let stdout carry data: text in UTF-8 like all files, whatever the locale is."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors=sys.stdout.errors)


def _escape_unencodable(error: UnicodeError) -> tuple[str | bytes, int]:
    try:
        return codecs.lookup_error("surrogateescape")(error)
    except UnicodeError:
        return codecs.backslashreplace_errors(error)


@contextmanager
def flushed_output() -> Iterator[None]:
    """Write what the block printed, so that an error is reported like others instead of when Python exits.

    Raises:
        OSError: stdout cannot be written to, because the disk is full or the reader has closed it.
    """
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except OSError:
        _discard_unwritable_output()
        raise


def _discard_unwritable_output() -> None:
    """Redirect stdout to /dev/null if it cannot be written to: Python would try again when it exits."""
    try:
        sys.stdout.flush()
    except OSError:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
