"""Registers relumt with fairseq, which imports this module for `--user-dir`, and shows errors of users on one line."""

import os
import sys
from types import TracebackType

import relumt
from relumt.errors import as_user_error, exit_on_user_error


def show_error(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print an error that a user can cause on one line and exit with its status; leave others to Python."""
    problem = as_user_error(error) if isinstance(error, Exception) and not isinstance(error, BrokenPipeError) else None
    if problem is None:
        sys.__excepthook__(kind, error, trace)
        return
    sys.stderr = sys.__stderr__  # in distributed training, PyTorch would drop what is printed before the exit
    with exit_on_user_error():
        raise problem


sys.excepthook = show_error
os.environ["HYDRA_FULL_ERROR"] = "1"  # otherwise fairseq-hydra-train prints errors itself
relumt.register()
