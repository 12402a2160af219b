"""Starts fairseq's commands for a run, and prints each as a user would type it."""

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NoReturn

from filelock import FileLock, Timeout

import relumt
from relumt.errors import AttemptFailedError, UserError, print_status
from relumt.installation import prepare_fairseq_import
from relumt.process import start_child
from relumt.runs.progress import follow

LOCK_FILE = ".lock"
"""Name of the locked file in a run's folder."""

PATIENCE = 2.0
"""Seconds in which a process that was just killed can end."""

Tool = Literal["train", "generate"]


@dataclass(frozen=True)
class FairseqCommand:
    """A fairseq command.

    Attributes:
        log: file to write its output to.
        arguments: of the command.
        is_verbose: print all of its output.
        environment: variables that it gets beside those of this process.
    """

    log: Path
    arguments: list[str]
    is_verbose: bool = False
    environment: dict[str, str] = field(default_factory=dict)


@contextmanager
def locked(folder: Path, waits: bool = False) -> Iterator[None]:
    """Keep other processes from working on a run during the block; create its folder if there is none.

    Raises:
        UserError: another process is working on it, unless this one waits for it.
    """
    lock = FileLock(folder / LOCK_FILE)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=-1 if waits else PATIENCE)
    except Timeout:
        raise UserError(f"{folder}: another process is working on this run; wait for it or stop it") from None
    try:
        yield
    finally:
        lock.release()


def shell_command(tool: Tool, command: FairseqCommand) -> str:
    """Return a command as a user would type it."""
    return f"fairseq-{tool} {shlex.join(command.arguments)}"


def run_fairseq(tool: Tool, command: FairseqCommand, *, append: bool) -> int:
    """Run fairseq-train or fairseq-generate, with its output in its log and progress on stdout; return its exit status.

    The log is appended to or replaced. If nobody reads stdout any more, as after `| head`, the command goes on.
    """
    line = f"\n$ {shell_command(tool, command)}\n"
    module = [sys.executable, "-P", "-m", f"fairseq_cli.{tool}", *command.arguments]
    if not append:
        command.log.unlink(missing_ok=True)  # hard links to it, as in a backup, keep their content
    with command.log.open("ab") as log, follow(command.arguments, command.is_verbose) as show:
        os.write(log.fileno(), line.encode())
        show(line)
        process = start_child(
            module,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=os.environ | {"PYTHONWARNINGS": "ignore"} | command.environment,
        )
        try:
            assert process.stdout is not None
            while chunk := process.stdout.read1(1 << 16):  # type: ignore[attr-defined]
                os.write(log.fileno(), chunk)
                show(chunk.decode("utf-8", errors="replace"))
            return process.wait()
        except BaseException:  # a signal, or a full disk
            process.terminate()
            process.wait()
            raise


def require_valid_arguments(arguments: list[str]) -> None:
    """Raise UserError, with fairseq's message, if fairseq-train would not accept its arguments."""
    prepare_fairseq_import()
    from fairseq import options  # takes seconds

    def refuse(message: str) -> NoReturn:
        raise UserError(f"fairseq-train: {message[:300]}")

    relumt.register()
    parser = options.get_training_parser()
    parser.error = refuse  # argparse's would print 200 lines of usage
    options.parse_args_and_arch(parser, arguments)


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
