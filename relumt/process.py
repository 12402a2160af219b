"""What a command gets from its command line and its environment, how its process ends, and child processes.

Nothing here imports PyTorch.
"""

import argparse
import ctypes
import io
import math
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Any, Literal, NoReturn, get_args

from relumt.errors import UserError, exit_on_user_error

TERMINATING = (signal.SIGTERM, signal.SIGHUP)
"""Signals that end a process and, unlike SIGINT, raise no exception in Python by default."""

ENVIRONMENT = {"MPLBACKEND": "agg", "LOGLEVEL": "INFO", "PYTHONUTF8": "1"}
"""What commands and their child processes depend on, whatever a notebook or a shell sets: matplotlib draws to files,
fairseq logs what `relumt.runs` reads, and Python reads and prints UTF-8."""

PR_SET_PDEATHSIG = 1  # <linux/prctl.h>

KernelSetting = Literal["auto", "experimental", "fused", "reference"]

KERNELS_VARIABLE = "RELUMT_KERNELS"
"""Environment variable that restricts the choice of kernels."""

SAMPLES_VARIABLE = "RELUMT_SAMPLES"
"""Environment variable that makes fairseq-train show sample translations, joining subwords as its value says."""

MAX_SEED = (1 << 31) - 1

KERNEL_SETTINGS: tuple[KernelSetting, ...] = get_args(KernelSetting)


class ArgumentParser(argparse.ArgumentParser):
    """A parser that reports invalid arguments like any other error of a user, without the usage."""

    def error(self, message: str) -> NoReturn:
        """Raise UserError."""
        raise UserError(f"{message}; see {self.prog} --help")


def whole_number(text: str, at_least: int = 0, at_most: float = math.inf) -> int:
    """Parse a whole number in a range; raise ArgumentTypeError for anything else, as the other types do."""
    if not text.isdecimal() or not at_least <= int(text) <= at_most:
        limit = "" if at_most == math.inf else f" to {at_most}"
        raise argparse.ArgumentTypeError(f"expected a whole number from {at_least}{limit}, found '{text}'")
    return int(text)


def seed(text: str) -> int:
    """Parse the random seed of a training: fairseq adds numbers of epochs, and NumPy takes 32 bits."""
    return whole_number(text, at_most=MAX_SEED)


def positive_integer(text: str) -> int:
    """Parse a whole number from 1."""
    return whole_number(text, at_least=1)


def finite_number(text: str) -> float:
    """Parse a number that is neither infinite nor NaN."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise argparse.ArgumentTypeError(f"expected a finite number, found '{text}'")
    return number


def share(text: str) -> float:
    """Parse a number from 0 to 1."""
    number = finite_number(text)
    if not 0 <= number <= 1:
        raise argparse.ArgumentTypeError(f"expected a number from 0 to 1, found '{text}'")
    return number


def kernel_choice() -> KernelSetting:
    """Return the value of RELUMT_KERNELS; raise UserError if it is not one of KERNEL_SETTINGS."""
    choice = os.environ.get(KERNELS_VARIABLE, "auto")
    if choice not in KERNEL_SETTINGS:
        raise UserError(f"{KERNELS_VARIABLE} is '{choice}'; it must be one of {', '.join(KERNEL_SETTINGS)}")
    return choice


def wants_triton(setting: KernelSetting, device_type: str) -> bool:
    """Return whether Triton is to be used on a device of a type: a GPU ("cuda") unless refused, others on demand."""
    return setting == "fused" or (setting in ("auto", "experimental") and device_type == "cuda")


def usable_cores() -> int:
    """Return how many CPU cores this process may use; taskset, Slurm and containers can limit it to some."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def command_line() -> Iterator[None]:
    """Run the block as a command: errors exit with 1 or 2 (`relumt.errors`), signals with 128 + N, and it prints UTF-8.

    Shells report a signal so, too. It holds for SIGINT (Ctrl-C), SIGTERM and SIGHUP, once the block has removed its
    temporary files, and a closed pipe counts as SIGPIPE. A signal that the parent ignores, as nohup does, stays
    ignored. Libraries and child processes see ENVIRONMENT.

    Raises:
        SystemExit: an error of the user or a signal ended the block.
    """

    def stop(number: int, _: FrameType | None) -> None:
        for terminating in TERMINATING:
            signal.signal(terminating, signal.SIG_IGN)  # removing temporary files is not interrupted
        raise SystemExit(128 + number)

    os.environ.update(ENVIRONMENT)
    handled = [number for number in TERMINATING if signal.getsignal(number) == signal.SIG_DFL]
    for number in handled:
        signal.signal(number, stop)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")
    try:
        with exit_on_user_error():
            try:
                yield
            finally:
                flush_output()
    except KeyboardInterrupt:
        raise SystemExit(128 + signal.SIGINT) from None
    except BrokenPipeError:  # the reader of stdout closed it early, as `head` does
        raise SystemExit(128 + signal.SIGPIPE) from None
    finally:
        for number in handled:
            signal.signal(number, signal.SIG_DFL)


def flush_output() -> None:
    """Write what was printed, so that an error is reported like others instead of when Python exits.

    Raises:
        OSError: stdout cannot be written to, because the disk is full or the reader has closed it.
    """
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python would try again when it exits
        raise


def end_with_parent(parent: int) -> None:
    """Let the kernel end this process when the thread that started it ends, on Linux; elsewhere do nothing.

    `parent` is the process that started this one; it may have ended already.
    """
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def start_child(command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
    """Start a process that ends with this one; `options` are those of `subprocess.Popen`."""
    return subprocess.Popen(command, preexec_fn=partial(end_with_parent, os.getpid()), **options)
