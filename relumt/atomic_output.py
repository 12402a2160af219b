"""Files and folders that appear complete or not at all.

What is unfinished lies beside the result, hidden, as .NAME.PROCESS.unfinished, or for a folder as .NAME.unfinished. New
content is on disk before it replaces anything, so that a crash of the machine does not lose both.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from relumt.files import require_replaceable_folder, sync

UNFINISHED = ".unfinished"
MAX_NAME = 100
"""Longer names are shortened in hidden names, because file systems allow 255 bytes."""


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write to; its content replaces `path` if the block succeeds.

    Missing parent folders are created. If the block raises, the temporary file is removed and `path` is unchanged.
    Pipes and devices, such as /dev/stdout, are not replaced: the content is written to them.
    """
    if path.exists() and (not path.is_file() or path.is_relative_to("/dev") or path.is_relative_to("/proc")):
        with tempfile.TemporaryDirectory() as folder, path.open("ab") as stream:
            yield Path(folder) / "content"
            with (Path(folder) / "content").open("rb") as content:
                shutil.copyfileobj(content, stream)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name[:MAX_NAME]}.{os.getpid()}{UNFINISHED}")
    try:
        yield unfinished
        sync(unfinished)
        unfinished.replace(path)
        sync(path.parent)
    finally:
        unfinished.unlink(missing_ok=True)


def remove_unfinished_files(folder: Path, prefix: str) -> None:
    """Remove what killed processes left of files in `folder` whose names begin with `prefix`."""
    for path in folder.glob(f".{prefix}*{UNFINISHED}"):
        path.unlink(missing_ok=True)


@contextmanager
def atomic_files(paths: Sequence[Path]) -> Iterator[list[Path]]:
    """Yield a temporary path for each of several files that belong together, such as the sides of a bitext.

    If the block succeeds, all of them are replaced. An error or a signal while that happens leaves some of them out,
    but never new content of one beside old content of another. If the block raises, nothing changes.
    """
    with ExitStack() as stack:
        unfinished = [stack.enter_context(atomic_file(path)) for path in paths]
        yield unfinished
        for path in paths[:-1]:  # the stack replaces the last file first
            if path.is_file():
                path.unlink()


def write_text_atomically(path: Path, text: str) -> None:
    """Write `text` to `path` in UTF-8, completely or not at all."""
    with atomic_file(path) as unfinished:
        unfinished.write_text(text, encoding="utf-8")


@dataclass(frozen=True)
class StagingArea:
    """Folders to work in: `result` becomes the requested folder, `scratch` is deleted."""

    result: Path
    scratch: Path


@contextmanager
def atomic_folder(out: Path) -> Iterator[StagingArea]:
    """Yield a staging area beside `out`; its `result` replaces `out` if the block succeeds, else nothing changes.

    Raises:
        UserError: `out` must not be replaced (see `require_replaceable_folder`).
    """
    require_replaceable_folder(out)
    out = out.resolve()
    folder = out.with_name(f".{out.name[:MAX_NAME]}{UNFINISHED}")
    missing_parents = [parent for parent in out.parents if not parent.exists()]
    _clear(folder, out)
    stage = StagingArea(folder / "result", folder / "scratch")
    stage.result.mkdir(parents=True)
    stage.scratch.mkdir()
    try:
        yield stage
        for path in (*stage.result.rglob("*"), stage.result):
            sync(path)
        if out.exists():
            out.rename(folder / "replaced")
        stage.result.rename(out)
        sync(out.parent)
    finally:
        _clear(folder, out)
        for parent in missing_parents:
            with suppress(OSError):  # it is not empty
                parent.rmdir()


def _clear(folder: Path, out: Path) -> None:
    """Remove a staging folder; a folder that it has replaced moves back to `out` unless something is there."""
    if (folder / "replaced").exists() and not out.exists():
        (folder / "replaced").rename(out)
    shutil.rmtree(folder, ignore_errors=True)
