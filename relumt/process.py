"""How the `relumt` process ends on signals, and what it does about output that cannot be written."""

import io
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from relumt.errors import exit_on_user_error

TERMINATING = (signal.SIGTERM, signal.SIGHUP)
"""Signals that end a process and, unlike SIGINT, raise no exception in Python by default."""


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
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")  # what the encoding of stdout lacks
        try:
            yield
        finally:
            flush_output()


@contextmanager
def exit_on_signals() -> Iterator[None]:
    """Exit with status 128 + N after signal N, as shells report it, once the block has removed its temporary files.

    This holds for SIGINT (Ctrl-C), SIGTERM and SIGHUP; a closed pipe counts as SIGPIPE. A signal that the parent
    ignores, as nohup does, stays ignored.
    """

    def stop(number: int, _: FrameType | None) -> None:
        for terminating in TERMINATING:
            signal.signal(terminating, signal.SIG_IGN)  # removing temporary files is not interrupted
        raise SystemExit(128 + number)

    handled = [number for number in TERMINATING if signal.getsignal(number) == signal.SIG_DFL]
    for number in handled:
        signal.signal(number, stop)
    try:
        yield
    except KeyboardInterrupt:
        raise SystemExit(128 + signal.SIGINT) from None
    except BrokenPipeError:  # the reader of stdout closed it early, as `head` does
        raise SystemExit(128 + signal.SIGPIPE) from None
    finally:
        for number in handled:
            signal.signal(number, signal.SIG_DFL)


def print_in_utf8() -> None:
    """Let stdout carry data: text in UTF-8 like all files, whatever the locale is."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")


def flush_output() -> None:
    """Write what was printed, so that an error is reported like others instead of when Python exits.

    Raises:
        OSError: stdout cannot be written to, because the disk is full or the reader has closed it.
    """
    try:
        if sys.stdout is not None:  # closed by the parent
            sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python would try again when it exits
        raise
