"""Folders that appear complete or not at all. What is unfinished lies beside them, hidden, as .NAME.unfinished."""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from relumt import files
from relumt.errors import UserError


@dataclass(frozen=True)
class StagingArea:
    """Folders to work in: `result` becomes the requested folder, `scratch` is deleted."""

    result: Path
    scratch: Path


@contextmanager
def atomic_folder(out: Path) -> Iterator[StagingArea]:
    """Yield a staging area beside `out`; its `result` replaces `out` if the block succeeds, else nothing changes.

    Raises:
        UserError: `out` cannot be written, is a file, or is the folder in which this process works; or another process
            is making it.
    """
    out = out.resolve()
    if out.is_file():
        raise UserError(f"{out}: expected a folder or nothing, found a file; choose another --out")
    files.require_writable(out.parent)
    if Path.cwd().is_relative_to(out):
        raise UserError(f"{out}: this is the working folder, which is not replaced; name a new folder in it")
    folder = out.with_name(f".{out.name}{files.UNFINISHED}")
    new_folders = [folder, *(parent for parent in out.parents if not parent.exists())]
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder, out):
        _empty(folder, out)
        stage = StagingArea(folder / "result", folder / "scratch")
        stage.result.mkdir()
        stage.scratch.mkdir()
        try:
            yield stage
            for path in (*stage.result.rglob("*"), stage.result):
                files.sync(path)
            if out.exists():
                out.rename(folder / "replaced")
            stage.result.rename(out)
            files.sync(out.parent)
        finally:
            _empty(folder, out)
            for new in new_folders:
                with suppress(OSError):  # it is not empty
                    new.rmdir()


@contextmanager
def _locked(folder: Path, out: Path) -> Iterator[None]:
    """Keep other processes from a staging folder; raise UserError if one works in it."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"{out}: another process is making it; wait for it or stop it") from None
        yield
    finally:
        os.close(descriptor)


def _empty(folder: Path, out: Path) -> None:
    """Empty a staging folder; a folder that it has replaced moves back to `out` unless something is there."""
    if (folder / "replaced").exists() and not out.exists():
        (folder / "replaced").rename(out)
    for path in folder.iterdir():
        shutil.rmtree(path, ignore_errors=True)
