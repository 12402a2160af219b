"""Child processes of a run's steps, which start at once because this process has imported PyTorch and fairseq.

Importing both takes seconds. This process imports them once and forks a child for every step, so each step has a
process of its own, with fresh random state, and its memory is free when it ends. This process itself must not compute
with PyTorch: OpenMP hangs in the child of a process that has used several threads, and CUDA does not work in the child
of one that has used a GPU.
"""

import atexit
import importlib
import logging
import os
import pickle
import signal
import subprocess
import sys
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Literal, NoReturn, TypeVar

from relumt.errors import exit_on_user_error
from relumt.fairseq_version import prepare_fairseq_import
from relumt.process import TERMINATING, has_no_reader
from relumt.runs.run_config import FairseqCommand

HYDRA = r"(?s).*(hydra|version_base)"
"""Warnings about how fairseq calls Hydra, which its users cannot change."""

Result = TypeVar("Result")


def preload_fairseq() -> None:
    """Import fairseq, and what relumt registers with it, for the children that this process will fork."""
    prepare_fairseq_import()
    importlib.import_module("fairseq.trainer")
    for name in ("criterions.attention_regularization", "models.mechanism_transformer", "tasks.corpora"):
        importlib.import_module(f"relumt.{name}")


def run_in_child(function: Callable[..., Result], *arguments: object) -> Result:
    """Call a function in a child process and return its result.

    Raises:
        SystemExit: the function failed, and has said why; the status is that of the child.
    """
    read_end, write_end = os.pipe()

    def write_result() -> None:
        with exit_on_user_error():
            result = pickle.dumps(function(*arguments))
        with open(write_end, "wb") as pipe:
            pipe.write(result)

    child = _fork(write_result)
    os.close(write_end)
    with open(read_end, "rb") as pipe:
        status, result = _wait_for(child, pipe.read)
    if status:
        raise SystemExit(status)
    return pickle.loads(result)


def run_fairseq(command: FairseqCommand, tool: Literal["train", "generate"], *, append: bool) -> int:
    """Run fairseq-train or fairseq-generate in a child, with its output on stdout and in its log; return its status.

    The log is appended to or replaced. The status is that of writing the output if only that failed. A closed stdout,
    as after `| head`, is no failure: the command goes on, and the log is complete.
    """
    preload_fairseq()
    if not append:
        command.log.unlink(missing_ok=True)  # hard links to it, as in a backup, keep their content
    log = ["-a", "--", str(command.log)] if append else ["--", str(command.log)]
    # It shares the run's lock, and ignores SIGPIPE as this process does.
    with subprocess.Popen(["tee", *log], stdin=subprocess.PIPE, close_fds=False, restore_signals=False) as tee:
        assert tee.stdin is not None
        output = tee.stdin.fileno()
        child = _fork(lambda: _call_fairseq(tool, command.arguments, output))
        status, _ = _wait_for(child, tee.stdin.close)
    return status or (0 if has_no_reader(1) else tee.returncode)


def _call_fairseq(tool: str, arguments: list[str], output: int) -> None:
    """Do in this process what `python -m fairseq_cli.TOOL` does in a fresh one, with its output on a descriptor."""
    for number in TERMINATING:
        if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
            signal.signal(number, signal.SIG_DFL)
    sys.unraisablehook = sys.__unraisablehook__
    for standard in (1, 2):
        os.dup2(output, standard)
    os.close(output)
    _restore_logging()
    warnings.filterwarnings("ignore", HYDRA)
    import relumt

    relumt.register()
    sys.argv = [f"fairseq-{tool}", *arguments]
    command = importlib.import_module(f"fairseq_cli.{tool}")
    # The processes of a training on several GPUs import this module first, as under fairseq-train. With relumt.cli they
    # would import relumt before fairseq, which then would not let it register.
    sys.modules["__main__"].__spec__ = command.__spec__
    command.cli_main()


def _restore_logging() -> None:
    """Undo `relumt.console.quiet_fairseq`, so that fairseq's commands set up their log."""
    root = logging.getLogger()
    for handler in list(root.handlers):
        root.removeHandler(handler)
    for name in ("fairseq", "relumt"):
        logging.getLogger(name).setLevel(logging.NOTSET)


def _fork(action: Callable[[], None]) -> int:
    """Start a child that does `action` and ends; return its process ID."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    return os.fork() or _exit_after(action)


def _exit_after(action: Callable[[], None]) -> NoReturn:
    """Do `action` and end this process as Python would, without returning to the frames of its parent."""
    status: object = 1
    try:
        try:
            action()
            status = 0
        except SystemExit as ended:
            status = ended.code or 0
        except KeyboardInterrupt:
            status = 128 + signal.SIGINT
        except BaseException:
            traceback.print_exc()
        if not isinstance(status, int):
            print(status, file=sys.stderr)
        atexit._run_exitfuncs()  # fairseq closes TensorBoard's files in one
        sys.stdout.flush()
    except BaseException:
        status = status or 1
    finally:
        os._exit(status if isinstance(status, int) else 1)


def _wait_for(child: int, meanwhile: Callable[[], Result]) -> tuple[int, Result]:
    """Return the exit status of a child, 128 + N after signal N, and the result of what this process does meanwhile."""
    try:
        result = meanwhile()
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    except BaseException:  # a signal
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGTERM)
        raise
    return (status if status >= 0 else 128 - status), result
