"""Remembers on disk which kernels passed their self-check, and which crashed a GPU, in one environment.

A kernel that merely failed is not remembered: a missing compiler or a full disk can be repaired before the next start.
"""

import functools
import hashlib
import logging
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Literal

import msgspec

from relumt.atomic_output import atomic_file
from relumt.errors import UserError
from relumt.json_files import read_json

logger = logging.getLogger(__name__)

Environment = dict[str, str]
"""What the outcome of a self-check depends on: GPU, driver, versions and revisions."""

Outcome = Literal["passed", "crashed"]


def cache_folder() -> Path:
    """Return the folder for what relumt learns about a machine: $RELUMT_CACHE, or relumt in the user's cache folder.

    A user without a home folder, as in some containers, gets a folder that exists for one process only.
    """
    if folder := os.environ.get("RELUMT_CACHE"):
        return Path(folder)
    if folder := os.environ.get("XDG_CACHE_HOME"):
        return Path(folder) / "relumt"
    try:
        return Path.home() / ".cache" / "relumt"
    except RuntimeError:
        return _temporary_folder()


@functools.cache
def _temporary_folder() -> Path:
    """Return a new folder that only this user can write to, so that nobody else can vouch for a kernel."""
    return Path(tempfile.mkdtemp(prefix="relumt-"))


class _Content(msgspec.Struct, forbid_unknown_fields=True):
    """The file's format; kernels by name."""

    environment: Environment
    passed: list[str]
    crashed: list[str]


class VerdictCache:
    """The remembered outcomes of an environment. Whatever is wrong with the file costs a warning, never a training.

    Args:
        environment: a change of any entry begins a new file.
        folder: where the file is.
    """

    def __init__(self, environment: Environment, folder: Path) -> None:
        self.environment = environment
        digest = hashlib.sha256(repr(sorted(environment.items())).encode()).hexdigest()[:16]
        self.path = folder / f"kernels-{digest}.json"
        self._is_writable = True

    def read(self) -> dict[str, Outcome]:
        """Return the outcome of every remembered kernel; nothing, with a warning, if the file is damaged."""
        try:
            return self._load()
        except UserError as error:
            logger.warning("%s", error)
            return {}

    def add(self, name: str, outcome: Outcome) -> None:
        """Remember the outcome of a kernel. Another process may overwrite it: then the check is made once more."""
        if not self._is_writable:
            return
        outcomes: dict[str, Outcome] = {}
        with suppress(UserError):  # `read` has warned
            outcomes = self._load()
        outcomes[name] = outcome
        passed, crashed = (
            sorted(name for name in outcomes if outcomes[name] == kind) for kind in ("passed", "crashed")
        )
        try:
            with atomic_file(self.path) as unfinished:
                unfinished.write_bytes(msgspec.json.encode(_Content(self.environment, passed, crashed)))
        except (OSError, UserError) as error:
            self._is_writable = False
            logger.warning("kernels are checked again at the next start: %s cannot be written (%s)", self.path, error)

    def _load(self) -> dict[str, Outcome]:
        """Read the file; nothing if it is missing or of another environment, UserError if it is damaged."""
        try:
            content = read_json(self.path, _Content, "it is ignored, and kernels are checked again")
        except (FileNotFoundError, NotADirectoryError):
            return {}
        if content.environment != self.environment:
            return {}
        passed: dict[str, Outcome] = dict.fromkeys(content.passed, "passed")
        return passed | dict.fromkeys(content.crashed, "crashed")
