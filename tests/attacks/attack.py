"""Runs a command under attack and checks what must hold for all of them."""

import hashlib
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from relumt.cli import main
from relumt.errors import UserError

ROOT = Path(__file__).parents[2]
ERROR = "relumt: error: "
MARKER = "RELUMT_ATTACK"
"""Environment variable by which processes that an attack leaves behind are found."""


@dataclass(frozen=True)
class Ended:
    """How a command ended: exit status, standard output, standard error."""

    status: int
    stdout: str
    stderr: str

    @property
    def error(self) -> str:
        """The one error line."""
        (line,) = [line for line in self.stderr.splitlines() if line.startswith(ERROR)]
        return line


@dataclass
class Attack:
    """Runs commands and checks how they end.

    Attributes:
        folder: working folder; a command that exits with status 2 must leave everything in it as it was.
        canary: file that a payload creates (`payload`); it must not exist afterwards.
        outcomes: "refused", "handled" or "failed" for every command that was run.
    """

    folder: Path
    capfd: pytest.CaptureFixture[str]
    canary: Path
    outcomes: list[str] = field(default_factory=list)

    @property
    def payload(self) -> str:
        """A shell command that creates the canary."""
        return f"touch {self.canary}"

    def relumt(self, *arguments: object, allow_changes: bool = False) -> Ended:
        """Run `relumt ARGUMENTS…` in this process."""
        return self.calls(lambda: main([str(argument) for argument in arguments]), allow_changes=allow_changes)

    def calls(self, function: Callable[[], Any], *, allow_changes: bool = False) -> Ended:
        """Call a function that ends in SystemExit with a line on stderr, as a command does."""
        before = snapshot(self.folder)
        self.capfd.readouterr()
        try:
            function()
            status = 0
        except SystemExit as exit_:
            status = exit_.code if isinstance(exit_.code, int) else int(bool(exit_.code))
        ended = Ended(status, *self.capfd.readouterr())
        return self._check(ended, before, allow_changes)

    def reads(self, reader: Callable[..., Any], *arguments: Any) -> str:
        """Call a function that reads something; return the message of its UserError, "" if it returned."""
        try:
            reader(*arguments)
        except UserError as error:
            assert "\n" not in str(error)
            self.outcomes.append("refused")
            return str(error)
        self.outcomes.append("handled")
        return ""

    def process(
        self,
        command: Sequence[object],
        *,
        env: Mapping[str, str] | None = None,
        timeout: float = 120,
        stdin: Any = subprocess.DEVNULL,
        allow_changes: bool = False,
        interrupt: Callable[[subprocess.Popen[str]], None] | None = None,
    ) -> Ended:
        """Run a command as a process in `folder`, `interrupt` it in some way, and check that nothing is left running.

        `relumt` as the first word stands for this environment's Python and relumt.cli.
        """
        words = [str(word) for word in command]
        if words[0] == "relumt":
            words = [sys.executable, "-P", "-m", "relumt.cli", *words[1:]]
        marker = uuid.uuid4().hex
        before = snapshot(self.folder)
        environment = {"PYTHONPATH": str(ROOT), "PYTHON": sys.executable} | os.environ | (env or {}) | {MARKER: marker}
        process = subprocess.Popen(
            words, cwd=self.folder, env=environment, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, errors="replace", start_new_session=True,
        )  # fmt: skip
        try:
            if interrupt is not None:
                interrupt(process)
            stdout, stderr = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            end_processes(marker)
            pytest.fail(f"hangs: {words} did not end within {timeout} s")
        left = wait_for_end(marker)
        end_processes(marker)
        assert not left, f"orphans: {words} left processes behind: {left}"
        ended = Ended(process.returncode, stdout, stderr)
        if interrupt is not None:
            self.outcomes.append("handled")
            assert "Traceback" not in ended.stderr, f"traceback: {ended.stderr}"
            return ended
        return self._check(ended, before, allow_changes)

    def script(self, name: str, *arguments: object, **options: Any) -> Ended:
        """Run scripts/NAME as a process in `folder`."""
        return self.process([ROOT / "scripts" / name, *arguments], **options)

    def _check(self, ended: Ended, before: Mapping[str, str], allow_changes: bool) -> Ended:
        assert ended.status in (0, 1, 2), f"status {ended.status}: {ended.stderr}"
        assert "Traceback" not in ended.stderr + ended.stdout, f"traceback: {ended.stderr}"
        if ended.status:
            errors = [line for line in ended.stderr.splitlines() if ": error: " in line]
            assert len(errors) == 1, f"expected one error line: {ended.stderr}"
        if ended.status == 2 and not allow_changes:
            assert snapshot(self.folder) == before, "a refused command changed files"
        self.outcomes.append({0: "handled", 1: "failed", 2: "refused"}[ended.status])
        return ended


def snapshot(folder: Path) -> dict[str, str]:
    """Return a checksum of every file below `folder`, and the type of everything else."""
    return {str(path.relative_to(folder)): _describe(path) for path in sorted(folder.rglob("*"))}


def _describe(path: Path) -> str:
    if path.is_symlink():
        return f"-> {os.readlink(path)}"
    if path.is_file():
        return hashlib.sha256(path.read_bytes()).hexdigest()
    return oct(path.lstat().st_mode)


def processes_with(marker: str) -> list[int]:
    """Return the processes whose environment has this marker."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and f"{MARKER}={marker}".encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:  # it has ended, or belongs to somebody else
            continue
    return found


def wait_for_end(marker: str, seconds: float = 15) -> list[int]:
    """Wait until no process has this marker; return those that are left."""
    end = time.monotonic() + seconds
    while (left := processes_with(marker)) and time.monotonic() < end:
        time.sleep(0.1)
    return left


def end_processes(marker: str) -> None:
    """Kill all processes with this marker."""
    for process in processes_with(marker):
        try:
            os.kill(process, signal.SIGKILL)
        except ProcessLookupError:
            continue
