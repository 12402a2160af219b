"""Child processes that end with their parent, however it ends.

Run as a program, this module runs another one, which ends with its parent and whose workers end with it:
child_processes.py PARENT MODULE ARGUMENTS…
"""

import ctypes
import os
import runpy
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

PR_SET_PDEATHSIG = 1  # <linux/prctl.h>
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def command_of_child(module: str, arguments: Sequence[str]) -> list[str]:
    """Return the command that runs a Python module as a process that ends with this one."""
    return [sys.executable, "-P", __file__, str(os.getpid()), module, *arguments]


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


if __name__ == "__main__":
    _, parent_id, *sys.argv = sys.argv
    end_with_parent(int(parent_id))
    os.register_at_fork(after_in_child=lambda: end_with_parent(os.getppid()))
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
