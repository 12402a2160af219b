"""Run a command that must not outlive whoever started it: python -m relumt.grid.guard COMMAND…

The one who starts this holds the other end of its standard input. When that end is closed, by will or because its
process was killed, everything that the command started is ended; a run's folder is free at once for the next start.
"""

import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress

PATIENCE = 10
"""Seconds between asking a command to end and ending it."""


def main() -> int:
    """Run the command of the command line; returns its exit status."""
    command = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL, start_new_session=True)
    threading.Thread(target=end_when_alone, args=(command,), daemon=True).start()
    return command.wait()


def end_when_alone(command: subprocess.Popen) -> None:
    """Wait until standard input is closed, and end the command and its children."""
    while os.read(0, 1024):
        pass
    with suppress(ProcessLookupError):
        os.killpg(command.pid, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        command.wait(PATIENCE)
    with suppress(ProcessLookupError):
        os.killpg(command.pid, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
