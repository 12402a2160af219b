"""Run a command that ends when its parent does: python -m relumt.grid.supervised_process COMMAND…

The parent starts this supervisor and holds the other end of its standard input. When that end is closed, by the parent
or because the parent was killed, the supervisor ends everything that the command started, which unlocks the run's
folder for the next start.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

GRACE_PERIOD = 10
"""Seconds between SIGTERM and SIGKILL."""


def start_supervised(command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
    """Start a command under a supervisor; closing the `stdin` of the result ends the command.

    The supervisor has a session of its own, so Ctrl-C and other signals to this process's group do not reach it.

    Args:
        command: the program and its arguments.
        options: further options of `subprocess.Popen`.
    """
    supervisor = [sys.executable, "-P", "-m", "relumt.grid.supervised_process", *command]
    return subprocess.Popen(supervisor, stdin=subprocess.PIPE, start_new_session=True, **options)


def stop_supervised(process: subprocess.Popen[bytes]) -> None:
    """End what `start_supervised` started, without waiting for it."""
    if process.stdin:
        process.stdin.close()


def main() -> int:
    """Run the command that follows on the command line; return its exit status."""
    command = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL, start_new_session=True)
    orphaned = threading.Event()
    watcher = threading.Thread(target=end_when_orphaned, args=(command, orphaned), daemon=True)
    watcher.start()
    status = command.wait()
    if orphaned.is_set():  # the command has ended, but its children may need the grace period
        watcher.join()
    return status


def end_when_orphaned(command: subprocess.Popen[bytes], orphaned: threading.Event) -> None:
    """Wait until standard input is closed, then end the command and its children."""
    while os.read(0, 1024):
        pass
    orphaned.set()
    with suppress(ProcessLookupError):  # raised once the last process of the group is gone
        os.killpg(command.pid, signal.SIGTERM)
        for _ in range(10 * GRACE_PERIOD):
            os.killpg(command.pid, 0)
            command.poll()  # a process counts as long as nobody has read its exit status
            time.sleep(0.1)
        os.killpg(command.pid, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
