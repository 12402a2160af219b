"""The lock on a run's folder, which keeps other processes off while this one or a child of it works on the run."""

import fcntl
import os
import time
from pathlib import Path

from relumt.console import print_status
from relumt.errors import UserError
from relumt.files import try_lock

LOCK_FILE = ".lock"
"""Name of the locked file in a run's folder."""

PATIENCE = 2.0
"""Seconds in which a process that was just killed can end."""

RETRY_AFTER = 0.05
"""Seconds between two attempts."""


class RunLock:
    """Locks of runs, each held until `release`, or until this process and its children have ended."""

    def __init__(self) -> None:
        self._held: dict[Path, int] = {}

    def acquire(self, folder: Path) -> None:
        """Lock a run, and create its folder if there is none; does nothing if this lock holds it already.

        Raises:
            UserError: another process is working on the run, or its folder cannot be written to.
        """
        if folder in self._held:
            return
        descriptor = _open_lock(folder)
        end = time.monotonic() + PATIENCE
        while not try_lock(descriptor):
            if time.monotonic() > end:
                os.close(descriptor)
                raise UserError(f"{folder}: another process is working on this run; wait for it or stop it")
            time.sleep(RETRY_AFTER)
        self._held[folder] = descriptor

    def wait_for(self, folder: Path) -> None:
        """Lock a run as soon as no other process works on it.

        Raises:
            UserError: its folder cannot be written to.
        """
        descriptor = _open_lock(folder)
        if not try_lock(descriptor):
            print_status(f"{folder}: another process is working on this run; waiting for it")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        self._held[folder] = descriptor

    def release(self, folder: Path) -> None:
        """Unlock a run, unless a child is still working on it."""
        os.close(self._held.pop(folder))


def _open_lock(folder: Path) -> int:
    """Return a descriptor of the file to lock, which programs that this process starts inherit."""
    path = folder / LOCK_FILE
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o666)
    except OSError:
        raise UserError(f"{folder} is not a writable folder; change RUNS") from None
    os.set_inheritable(descriptor, True)
    return descriptor
