"""Run a command that ends when its parent does: python -m relumt.grid.supervised_process COMMAND…

The parent starts this supervisor and holds the other end of its standard input. When that end is closed, because the
parent wants it (`stop_supervised`, or scripts/common.sh) or was killed, the supervisor ends everything that the command
started, which unlocks the run's folder for the next start. It also ends what the command leaves behind.
"""

import ctypes
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

SUPERVISED = "RELUMT_SUPERVISED"
"""Environment variable that tells a script of scripts/ that it needs no supervisor of its own."""

ENDING_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""Signals by which users, terminals and job schedulers end a process."""

PR_SET_CHILD_SUBREAPER = 36
"""Linux's number of the prctl by which a process adopts the orphans among its descendants."""


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
    """Run the command that follows on the command line; return its exit status, 128 + N if signal N ended it."""
    adopt_orphans()
    for number in ENDING_SIGNALS:  # the parent decides when to end
        signal.signal(number, signal.SIG_IGN)
    command = subprocess.Popen(
        sys.argv[1:],
        stdin=subprocess.DEVNULL,
        env=os.environ | {SUPERVISED: "1"},
        start_new_session=True,
        close_fds=False,  # those that the parent passed on
        preexec_fn=restore_signals,
    )
    watcher = start_watcher(command.pid)
    signal.signal(signal.SIGTSTP, lambda *_: pause(command.pid))
    threading.Thread(target=end_when_orphaned, args=(command.pid,), daemon=True).start()
    status = command.wait()
    end_group(command.pid)
    os.close(watcher)
    return status if status >= 0 else 128 - status


def start_watcher(group: int) -> int:
    """Start a process that ends a process group when this one is gone; it is, once the descriptor returned is closed.

    SIGKILL to the process group of the parent ends the supervisor, too, which then cannot end the command.
    """
    read_end, write_end = os.pipe()
    if os.fork():
        os.close(read_end)
        return write_end
    os.setsid()
    os.dup2(read_end, 0)
    os.closerange(1, max(map(int, os.listdir("/dev/fd"))) + 1)  # a lock or a pipe must not stay open
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTSTP})  # only the main thread runs handlers
    while os.read(0, 1024):
        pass
    end_group(group)
    os._exit(0)


def restore_signals() -> None:
    """Let the signals end the command, which would otherwise ignore them like the supervisor."""
    for number in ENDING_SIGNALS:
        signal.signal(number, signal.SIG_DFL)


def pause(group: int) -> None:
    """Stop a process group and this process, as Ctrl-Z asks for; go on when this process is continued."""
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGSTOP)
        os.kill(os.getpid(), signal.SIGSTOP)
        os.killpg(group, signal.SIGCONT)


def adopt_orphans() -> None:
    """Become the parent of descendants whose parent has ended, if this is Linux.

    Without it, they stay in their process group as zombies wherever the first process of a container reads no exit
    status, and `end_group` would wait for them.
    """
    with suppress(AttributeError):  # not Linux
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)


def end_when_orphaned(group: int) -> None:
    """Wait until standard input is closed, then end a process group."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTSTP})  # only the main thread runs handlers
    while os.read(0, 1024):
        pass
    with suppress(ProcessLookupError):  # raised once the last process of the group is gone
        os.killpg(group, signal.SIGTERM)
        time.sleep(GRACE_PERIOD)
        os.killpg(group, signal.SIGKILL)


def end_group(group: int) -> None:
    """End the processes that are left in a group whose first process has ended."""
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGTERM)
        for _ in range(20 * GRACE_PERIOD):
            with suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG) != (0, 0):
                    pass
            os.killpg(group, 0)
            time.sleep(0.05)
        os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
