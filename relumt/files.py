"""Checks of paths before any work, checksums, and writing to disk."""

import hashlib
import os
import stat
from collections.abc import Iterable, Mapping
from contextlib import nullcontext, suppress
from pathlib import Path

from relumt.errors import UserError, printable

KINDS = {
    stat.S_IFREG: "a file",
    stat.S_IFDIR: "a folder",
    stat.S_IFLNK: "a broken link",
    stat.S_IFIFO: "a pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a block device",
    stat.S_IFSOCK: "a socket",
}
"""Type of a file → how messages call it."""


def file_digest(path: Path, algorithm: str) -> str:
    """Return a file's checksum in hexadecimal; `algorithm` is a name that hashlib knows ("sha256", "md5")."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


def file_sha256(path: Path) -> str:
    """Return a file's SHA-256 checksum in hexadecimal."""
    return file_digest(path, "sha256")


def sync(path: Path) -> None:
    """Wait until a file, or the list of names in a folder, is on disk; some file systems cannot sync folders."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        with suppress(OSError) if path.is_dir() else nullcontext():
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def describe_kind(path: Path) -> str | None:
    """Return what is at `path` ("a folder", "a broken link"), None if nothing is."""
    try:
        return KINDS[stat.S_IFMT(path.stat().st_mode)]
    except OSError:
        return KINDS[stat.S_IFLNK] if path.is_symlink() else None


def changed_files(folder: Path, checksums: Mapping[str, str]) -> list[str]:
    """Return the names of the files of a folder that are missing or do not have these SHA-256."""
    return [
        name
        for name, checksum in checksums.items()
        if not (folder / name).is_file() or file_sha256(folder / name) != checksum
    ]


def require_simple_name(path: Path | str) -> None:
    """Raise UserError if a path has line breaks or other control characters, or bytes that are not UTF-8."""
    if (shown := printable(str(path))) != str(path):
        raise UserError(f"{shown}: the name has a line break, a control character or invalid UTF-8; rename it")


def nearest_existing(path: Path) -> Path:
    """Return `path` or its nearest parent that is there, also below a folder that must not be entered.

    `Path.exists` raises PermissionError below such a folder, and `os.path.exists` does not.
    """
    return next(parent for parent in (path, *path.absolute().parents) if os.path.exists(parent))


def require_writable(folder: Path) -> None:
    """Raise UserError unless files can be written to `folder`, or it can be created."""
    existing = nearest_existing(folder)
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        raise UserError(f"{folder}: {existing} is not a writable folder; choose another folder")


def require_replaceable_file(path: Path) -> None:
    """Raise UserError if a file must not be written to `path`, because a folder, disk or socket is there."""
    if (kind := describe_kind(path)) in ("a folder", "a block device", "a socket"):
        raise UserError(f"{path}: expected a file, found {kind}; name a file")


def require_inputs_kept(inputs: Iterable[Path], outputs: Iterable[Path]) -> None:
    """Raise UserError if an output is an input, by whatever name, or is something that must not be replaced."""
    outputs = list(outputs)
    for output in outputs:
        require_replaceable_file(output)
    existing = [output for output in outputs if output.exists()]
    if not existing:
        return  # without listing the inputs, which may be the files of a large folder
    for path in inputs:
        for output in existing:
            if path.exists() and path.samefile(output):
                raise UserError(f"{output}: would overwrite the input {path}; choose another --out")


def require_replaceable_folder(out: Path) -> None:
    """Raise UserError unless a new folder can take the place of `out`: of nothing, or of a folder nobody works in."""
    require_simple_name(out)
    if out.exists() and not out.is_dir():
        raise UserError(f"{out}: expected a folder or nothing, found a file; choose another --out")
    folder = out.resolve()
    require_writable(folder.parent)
    for used in (Path.cwd(), Path(os.path.expanduser("~"))):
        if folder == used or folder in used.parents:
            raise UserError(f"{out}: {used} is in it, which must not be replaced; name a new folder inside it")
