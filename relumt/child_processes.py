"""Child processes that end with their parent, however it ends."""

import ctypes
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

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
