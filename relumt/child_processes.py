"""Child processes that end with their parent, however it ends."""

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import IO, Any

PR_SET_PDEATHSIG = 1  # <linux/prctl.h>
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def end_with_parent(parent: int) -> None:
    """Let the kernel end this process when the thread that started it ends, on Linux; elsewhere do nothing.

    `parent` is the process that started this one; it may have ended already.
    """
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def start_child(command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
    """Start a process that ends with this one; `options` are those of `subprocess.Popen`."""
    return subprocess.Popen(command, preexec_fn=partial(end_with_parent, os.getpid()), **options)


def start_in_session(
    command: Sequence[str], stdin: IO[bytes], stderr: IO[bytes] | int, environment: dict[str, str] | None = None
) -> "subprocess.Popen[bytes]":
    """Start a process that prints to a pipe, ends with this one, and leads a session: Ctrl-C reaches only this process.

    Raises:
        OSError: the command cannot be executed.
    """
    with signals_held_back():
        return subprocess.Popen(
            command,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env=environment,
            start_new_session=True,
            preexec_fn=partial(end_with_parent, os.getpid()),
        )


def signal_name(status: int) -> str:
    """Name the signal that ended a process, given its negative status; "signal N" if N has no name."""
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"


@contextmanager
def signals_held_back() -> Iterator[None]:
    """Delay signals until the end of the block, so that it starts processes completely or not at all.

    Blocking them would not do: another thread of a library would receive them, and Python handles them in this one.
    """
    received: list[int] = []
    handlers = {number: signal.signal(number, lambda number, _: received.append(number)) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    if received:
        signal.raise_signal(received[0])
