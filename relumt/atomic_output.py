"""Files and folders that appear complete or not at all.

What is unfinished lies beside the result, hidden, as .NAME….unfinished, and is locked by the process that writes it.
What a killed process left is not locked, and the next process that writes NAME removes it. New content is on disk
before it replaces anything, so that a crash of the machine does not lose both.
"""

import fcntl
import hashlib
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from relumt.errors import UserError
from relumt.files import is_stream, require_replaceable_file, require_replaceable_folder, sync

UNFINISHED = ".unfinished"
MAX_NAME_BYTES = 200
"""Longer names are shortened in hidden names, because file systems allow 255 bytes."""


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write to; its content replaces `path` if the block succeeds.

    Missing parent folders are created. If the block raises, the temporary file is removed and `path` is unchanged.
    Pipes, terminals and names of open files, such as /dev/stdout, are not replaced: the content is written to them.

    Raises:
        UserError: `path` is a folder, a block device or a socket, or a pipe that nobody reads.
    """
    require_replaceable_file(path)
    with _stream(path) if is_stream(path) else _replacement(path) as unfinished:
        yield unfinished


@contextmanager
def atomic_files(paths: Sequence[Path]) -> Iterator[list[Path]]:
    """Yield a temporary path for each of several files that belong together, such as the sides of a bitext.

    If the block succeeds, all of them are replaced. An error or a signal while that happens leaves some of them out,
    but never new content of one beside old content of another. If the block raises, nothing changes.

    Raises:
        UserError: as `atomic_file` does.
    """
    with ExitStack() as stack:
        unfinished = [stack.enter_context(atomic_file(path)) for path in paths]
        yield unfinished
        for path in unfinished:  # the slow part
            sync(path)
        for path in paths[:-1]:  # the stack replaces the last file first
            if not is_stream(path):
                path.unlink(missing_ok=True)


@contextmanager
def _stream(path: Path) -> Iterator[Path]:
    """Yield a temporary path; its content is written to the stream `path` if the block succeeds."""
    try:  # before the block, and not waiting: opening a pipe that nobody reads would hang after all the work
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError as error:
        raise UserError(f"{path}: cannot be written to ({error.strerror}); start its reader first") from None
    with os.fdopen(descriptor, "wb") as stream, tempfile.TemporaryDirectory() as folder:
        os.set_blocking(descriptor, True)
        unfinished = Path(folder) / "content"
        yield unfinished
        with unfinished.open("rb") as content:
            shutil.copyfileobj(content, stream)


@contextmanager
def _replacement(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`, which it replaces if the block succeeds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    prefix = f".{_shorten(path.name)}."
    remove_files_of_dead_processes(path.parent, prefix)
    descriptor = None
    while descriptor is None:  # another process may have taken the new file for one that a dead process left
        unfinished = path.with_name(f"{prefix}{secrets.token_hex(4)}{UNFINISHED}")
        with suppress(BlockingIOError):
            descriptor = _open_locked(unfinished, os.O_RDWR | os.O_CREAT | os.O_EXCL, is_new=True)
    try:
        yield unfinished
        sync(unfinished)
        unfinished.replace(path)
        sync(path.parent)
    finally:
        unfinished.unlink(missing_ok=True)
        os.close(descriptor)


def remove_files_of_dead_processes(folder: Path, prefix: str) -> None:
    """Remove the unfinished files with this prefix that no process has locked."""
    for name in os.listdir(folder):
        if name.startswith(prefix) and name.endswith(UNFINISHED):
            with suppress(OSError):  # locked, or finished in the meantime, or not ours to remove
                descriptor = _open_locked(folder / name, os.O_RDWR | os.O_NONBLOCK, is_new=False)
                if descriptor is not None:
                    (folder / name).unlink()
                    os.close(descriptor)


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
    """Yield a staging area beside `out`; its `result` replaces `out` if the block succeeds.

    Missing parent folders are created. If the block raises or is interrupted, everything new is removed and `out` is
    unchanged.

    Raises:
        UserError: `out` must not be replaced (see `require_replaceable_folder`), or another process is writing it.
    """
    require_replaceable_folder(out)
    out = out.resolve()
    missing_parents = [parent for parent in out.parents if not parent.exists()]
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with _staging_folder(out) as folder:
            stage = StagingArea(folder / "result", folder / "scratch")
            stage.result.mkdir()
            stage.scratch.mkdir()
            yield stage
            for path in (*stage.result.rglob("*"), stage.result):
                sync(path)
            if out.exists():
                out.rename(folder / "replaced")
            stage.result.rename(out)
            sync(out.parent)
    except BaseException:
        with suppress(OSError):  # another process may have written to a parent folder in the meantime
            for parent in missing_parents:
                parent.rmdir()
        raise


@contextmanager
def _staging_folder(out: Path) -> Iterator[Path]:
    """Yield an empty folder beside `out`, locked by this process, and remove it after the block."""
    folder = out.with_name(f".{_shorten(out.name)}{UNFINISHED}")
    descriptor = None
    while descriptor is None:  # the process that had the folder may have removed it in the meantime
        is_new = _create(folder)
        with suppress(FileNotFoundError):
            try:
                descriptor = _open_locked(folder, os.O_RDONLY | os.O_DIRECTORY, is_new)
            except BlockingIOError:
                raise UserError(f"{out}: another process is writing it; wait for that process or stop it") from None
    try:
        _empty(folder, out)  # of what a killed process left
        yield folder
    finally:
        _empty(folder, out)
        folder.rmdir()
        os.close(descriptor)


def _create(folder: Path) -> bool:
    """Create a folder; return False if it exists."""
    try:
        folder.mkdir()
    except FileExistsError:
        return False
    return True


def _empty(folder: Path, out: Path) -> None:
    """Empty a staging folder; a folder that it has replaced moves back to `out` unless something is there."""
    if (folder / "replaced").exists() and not out.exists():
        (folder / "replaced").rename(out)
    for path in folder.iterdir():
        shutil.rmtree(path)


def _open_locked(path: Path, flags: int, is_new: bool) -> int | None:
    """Open and lock a file or folder; return None if another process has removed it in the meantime.

    On a file system without locks, only what `is_new` counts as locked.

    Raises:
        BlockingIOError: another process has locked it, or may have done so.
    """
    descriptor = os.open(path, flags | os.O_NOFOLLOW, 0o666)
    try:
        _lock(descriptor, is_new)
        if path.exists() and os.path.samestat(os.fstat(descriptor), path.stat()):
            return descriptor
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def _lock(descriptor: int, is_new: bool) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError as error:  # no locks
        if not is_new:
            raise BlockingIOError(error.errno, error.strerror) from None


def _shorten(name: str) -> str:
    """Return `name`, shortened to MAX_NAME_BYTES bytes if it is longer; different names stay different."""
    encoded = os.fsencode(name)
    if len(encoded) <= MAX_NAME_BYTES:
        return name
    digest = hashlib.sha256(encoded).hexdigest()[:8]
    return f"{os.fsdecode(encoded[: MAX_NAME_BYTES - 9])}-{digest}"
