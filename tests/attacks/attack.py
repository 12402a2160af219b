"""What must hold whenever a request is refused: one line on stderr, exit status 2, and every file as it was."""

import hashlib
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from relumt.cli import main
from relumt.errors import as_user_error, exit_on_user_error

ROOT = Path(__file__).parents[2]


def snapshot(folder: Path) -> dict[str, str]:
    """Return a checksum of every file below `folder`, and the type of everything else."""
    return {str(path.relative_to(folder)): _describe(path) for path in sorted(folder.rglob("*"))}


def _describe(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else oct(path.lstat().st_mode)


def error_of(action: Callable[[], object], capfd: pytest.CaptureFixture[str], status: int = 2) -> str:
    """Call what must be refused, in the working folder; return its error line, and check that it left all files."""
    before = snapshot(Path())
    capfd.readouterr()
    with pytest.raises(SystemExit) as stopped, exit_on_user_error():  # as the commands of fairseq do with --user-dir
        action()
    printed = capfd.readouterr()
    assert stopped.value.code == status and "Traceback" not in printed.err, printed.err
    (line,) = [line for line in printed.err.splitlines() if ": error: " in line]
    assert line.startswith("relumt: error: ") and re.search("; |expected|must be", line), f"what is to be done? {line}"
    assert len(line) < 600 and snapshot(Path()) == before
    return line


def relumt(command: str) -> None:
    """Run `relumt COMMAND` in this process."""
    main(shlex.split(command))


def start(command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command line of bash as a process; `relumt` stands for this environment's Python and relumt.cli."""
    command = command.replace("relumt ", f"{sys.executable} -P -m relumt.cli ").replace("scripts/", f"{ROOT}/scripts/")
    settings = os.environ | {"PYTHONPATH": str(ROOT), "PYTHON": sys.executable} | environment
    return subprocess.run(["bash", "-c", command], env=settings, capture_output=True, text=True, timeout=120)


def problem_of(read: Callable[[], object]) -> str:
    """Call what reads something; return the message of an error that a user can cause, "" if there is none.

    Any other error is passed on, and fails the test.
    """
    try:
        read()
    except (Exception, SystemExit) as error:
        problem = as_user_error(error) if isinstance(error, Exception) else None
        if problem is None:
            raise
        assert "\n" not in str(problem) and len(str(problem)) < 600
        return str(problem)
    return ""
