"""Starts fairseq's commands for a run: prints each as a user would type it, and writes its output to a log, too."""

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

from filelock import FileLock, Timeout

from relumt.console import print_status
from relumt.errors import AttemptFailedError, UserError
from relumt.process import start_child
from relumt.runs.run_config import FairseqCommand

LOCK_FILE = ".lock"
"""Name of the locked file in a run's folder."""

PATIENCE = 2.0
"""Seconds in which a process that was just killed can end."""

Tool = Literal["train", "generate"]


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes from working on a run during the block; create its folder if there is none.

    Raises:
        UserError: another process is working on it, or the folder cannot be written to.
    """
    lock = FileLock(folder / LOCK_FILE)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=PATIENCE)
    except Timeout:
        raise UserError(f"{folder}: another process is working on this run; wait for it or stop it") from None
    except OSError:
        raise UserError(f"{folder} is not a writable folder; change RUNS") from None
    try:
        yield
    finally:
        lock.release()


def shell_command(tool: Tool, command: FairseqCommand) -> str:
    """Return a command as a user would type it."""
    return f"fairseq-{tool} {shlex.join(command.arguments)}"


def run_fairseq(tool: Tool, command: FairseqCommand, *, append: bool) -> int:
    """Run fairseq-train or fairseq-generate, with its output on stdout and in its log; return its exit status.

    The log is appended to or replaced. If nobody reads stdout any more, as after `| head`, the command goes on.
    """
    line = f"\n$ {shell_command(tool, command)}\n".encode()
    module = [sys.executable, "-P", "-m", f"fairseq_cli.{tool}", *command.arguments]
    if not append:
        command.log.unlink(missing_ok=True)  # hard links to it, as in a backup, keep their content
    with command.log.open("ab") as log:
        _copy(line, log.fileno())
        process = start_child(
            module,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=os.environ | {"PYTHONWARNINGS": "ignore"},
        )
        try:
            assert process.stdout is not None
            while chunk := process.stdout.read1(1 << 16):  # type: ignore[attr-defined]
                _copy(chunk, log.fileno())
            return process.wait()
        except BaseException:  # a signal, or a full disk
            process.terminate()
            process.wait()
            raise


def _copy(chunk: bytes, log: int) -> None:
    os.write(log, chunk)
    with suppress(BrokenPipeError):
        sys.stdout.buffer.write(chunk)
        sys.stdout.buffer.flush()


def failure(tool: Tool, command: FairseqCommand, status: int) -> UserError:
    """Return the error for a command that ended with a status other than 0; it quotes the last line of its output."""
    kind = UserError if status == UserError.exit_status else AttemptFailedError
    lines = command.log.read_text(encoding="utf-8", errors="replace").split("\n")
    last = next((line.strip()[:300] for line in reversed(lines) if line.strip()), "no output")
    return kind(f"fairseq-{tool} failed ({last.removeprefix('relumt: error: ')}); see the end of {command.log}")


def print_command(tool: Tool, command: FairseqCommand) -> None:
    """Print a command instead of running it."""
    print(shell_command(tool, command))
    print_status(f"its log would be {command.log}")
