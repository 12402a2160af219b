"""Checks of paths before any work, checksums, and writing to disk."""

import errno
import fcntl
import hashlib
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
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

MOUNTS = Path("/proc/self/mountinfo")


def file_digest(path: Path, algorithm: str) -> str:
    """Return a file's checksum in hexadecimal; `algorithm` is a name that hashlib knows ("sha256", "md5")."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


def file_sha256(path: Path) -> str:
    """Return a file's SHA-256 checksum in hexadecimal."""
    return file_digest(path, "sha256")


def sync(path: Path) -> None:
    """Wait until a file, or the list of names in a folder, is on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
"""Errors of flock on a file system without locks, such as Lustre mounted without them."""


def try_lock(descriptor: int, operation: int = fcntl.LOCK_EX) -> bool:
    """Lock a file without waiting, if its file system has locks; return False if another process has locked it.

    Args:
        descriptor: descriptor of the open file.
        operation: LOCK_EX, or LOCK_SH to share the lock.
    """
    try:
        fcntl.flock(descriptor, operation | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
    return True


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


def require_only(folder: Path, written: Iterable[str], writer: str) -> None:
    """Raise UserError if a folder that --overwrite would replace has other files than `writer` has written there."""
    own = set(written)
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir())
    if foreign := [name for name in names if name not in own]:
        raise UserError(
            f"{folder}: --overwrite would delete {', '.join(foreign[:3])}, which {writer} did not write; move what you "
            "need, or give another --out"
        )


def optional_file(path: Path) -> Path | None:
    """Return `path` if a file is there, and None if nothing is.

    Raises:
        UserError: something else is there, which must not be taken for a missing file.
    """
    kind = describe_kind(path)
    if kind not in (None, "a file"):
        raise UserError(f"{path}: expected a file, found {kind}; remove or rename it")
    return path if kind else None


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


def is_stream(path: Path) -> bool:
    """Return whether output is written to `path` instead of replacing it.

    That is so for a pipe, for a device such as /dev/null, and for a name of an open file such as /dev/stdout.
    """
    target = path.parent / os.readlink(path) if path.is_symlink() else path
    if any(re.fullmatch(r"/proc/\d+/fd", str(name.parent.resolve())) for name in (path, target)):
        return True
    return describe_kind(path) in ("a pipe", "a device")


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
    """Raise UserError unless a new folder can take the place of `out`.

    Either nothing is there and it can be created, or there is a folder that can be moved away: no mount point, no
    parent of the current or the home folder, and not write-protected.
    """
    require_simple_name(out)
    folder = Path(os.path.realpath(out))
    for path in (out, folder):  # they may differ in kind: out is missing/.. or a broken link
        if (kind := describe_kind(path)) not in (None, "a folder"):
            raise UserError(f"{out}: expected a folder or nothing, found {kind}; choose another --out")
    require_writable(folder.parent)
    if not folder.exists():
        return
    for used in _used_folders():
        if folder == used or folder in used.parents:
            raise UserError(f"{out}: {used} is in it, which must not be replaced; name a new folder inside it")
    if os.path.ismount(folder) or str(folder) in _mount_points():
        raise UserError(f"{out}: is a mount point, which cannot be replaced; name a new folder inside it")
    require_writable(folder)


def _used_folders() -> Iterator[Path]:
    """Yield the current folder and, if the user has one, the home folder."""
    yield Path.cwd()
    with suppress(RuntimeError):
        yield Path.home().resolve()


def _mount_points() -> list[str]:
    """Return all mount points, including those of a folder of the same file system."""
    lines = MOUNTS.read_text(errors="surrogateescape").splitlines() if MOUNTS.exists() else []
    return [re.sub(r"\\(\d{3})", lambda code: chr(int(code[1], 8)), line.split(" ")[4]) for line in lines]


def require_outside(folder: Path, paths: Iterable[Path]) -> None:
    """Raise UserError if one of these paths is `folder`, which is to be replaced, or in it, by whatever name."""
    if not folder.exists():
        return
    for path in paths:
        for name in (Path(os.path.abspath(path)), path.resolve()):
            if any(parent.exists() and parent.samefile(folder) for parent in (name, *name.parents)):
                raise UserError(f"{path}: is in {folder}, which would be replaced; move it, or choose another --out")
