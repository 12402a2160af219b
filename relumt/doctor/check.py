"""What a check of `relumt doctor` finds, and child processes that try what could crash."""

import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from relumt.child_processes import signal_name
from relumt.errors import UserError, describe_error

Status = Literal["ok", "warning", "error"]


class Check(NamedTuple):
    """What was found about one subject.

    Attributes:
        name: the subject.
        status: "error" if training needs it and it is broken, "warning" if something else is impaired.
        detail: what was found, on one line.
        advice: what to do about it; "" if nothing has to be done.
    """

    name: str
    status: Status
    detail: str
    advice: str = ""


CheckFunction = Callable[[], Check]


def run_check(function: CheckFunction) -> Check:
    """Return what a check finds; an exception that it raises is an error of its subject."""
    name = function.__name__.removeprefix("check_").replace("_", " ")
    try:
        return function()
    except UserError as error:
        return Check(name, "error", str(error))
    except ModuleNotFoundError as error:  # the check of packages says what to install
        return Check(name, "error", f"cannot be checked: {error}")
    except Exception as error:  # whatever is broken on the machine must not end the report
        return Check(name, "error", describe_error(error), "repair the installation, or report this as an issue")


class ChildFailedError(Exception):
    """A child process failed; the message is what it printed about it, or how it ended."""


def run_python(code: str) -> str:
    """Return what Python code prints on stdout in a process of its own, which ignores the current directory.

    Raises:
        ChildFailedError: it raised an exception, crashed or did not end in time.
    """
    return run_command([sys.executable, "-P", "-c", code])


def run_command(command: Sequence[str], time_limit: float = 300) -> str:
    """Return the stdout of a command.

    Raises:
        ChildFailedError: it cannot be started, failed, crashed or did not end within `time_limit` seconds.
    """
    try:
        done = subprocess.run(command, capture_output=True, timeout=time_limit, text=True, errors="replace", check=True)
    except subprocess.TimeoutExpired:
        raise ChildFailedError(f"no result within {time_limit:g} seconds") from None
    except subprocess.CalledProcessError as error:
        raise ChildFailedError(_find_message(error.stderr or error.stdout) or describe_exit(error.returncode)) from None
    except OSError as error:
        raise ChildFailedError(f"{command[0]} cannot be started: {error.strerror}") from None
    return done.stdout


def _find_message(output: str) -> str:
    """Return the line that says what went wrong: a compiler's first error, the end of a traceback; "" if none does."""
    lines = output.strip().splitlines() or [""]
    # Indented lines of a traceback quote the code, from Python 3.13 on that of `python -c`, too.
    return next((line for line in lines if "error: " in line and not line.startswith(" ")), lines[-1])[:300]


def describe_exit(status: int) -> str:
    """Describe how a process ended; a negative status is the signal that ended it."""
    if status >= 0:
        return f"its process ended with status {status}"
    return f"its process was ended by {signal_name(status)}"
