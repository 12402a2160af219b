"""Run a command that must not outlive whoever started it: python -m relumt.grid.guard COMMAND…

The one who starts this holds the other end of its standard input. When that end is closed, by will or because its
process was killed, everything that the command started is ended; a run's folder is free at once for the next start.
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

PATIENCE = 10
"""Seconds between asking a command to end and ending it."""


def guarded(command: Sequence[str], **options: Any) -> subprocess.Popen:
    """Start a command under a guard, which is told to end it by closing `stdin`; `options` are Popen's.

    What is sent to this process's group, Ctrl-C too, does not reach the guard.
    """
    guard = [sys.executable, "-P", "-m", "relumt.grid.guard", *command]
    return subprocess.Popen(guard, stdin=subprocess.PIPE, start_new_session=True, **options)


def main() -> int:
    """Run the command of the command line; returns its exit status."""
    command = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL, start_new_session=True)
    alone = threading.Event()
    watch = threading.Thread(target=end_when_alone, args=(command, alone), daemon=True)
    watch.start()
    status = command.wait()
    if alone.is_set():
        watch.join()
    return status


def end_when_alone(command: subprocess.Popen, alone: threading.Event) -> None:
    """Wait until standard input is closed, and end the command and its children, which may take longer than it."""
    while os.read(0, 1024):
        pass
    alone.set()
    with suppress(ProcessLookupError):
        os.killpg(command.pid, signal.SIGTERM)
        for _ in range(10 * PATIENCE):
            os.killpg(command.pid, 0)
            command.poll()
            time.sleep(0.1)
        os.killpg(command.pid, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
