"""What preparation and runs both need of files."""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from relumt.errors import UserError


def digest(path: Path, kind: str) -> str:
    """A file's checksum of a kind that hashlib has ("sha256", "md5"), in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, kind).hexdigest()


def sha256(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    return digest(path, "sha256")


def require_writable(folder: Path) -> None:
    """Raise UserError if nothing can be written in a folder, or in the one that it would be made in."""
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        raise UserError(f"{folder}: {existing} is no folder that can be written to; name another")


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """A file to write in `path`'s stead; it takes that place when the block ends well, and is removed when not.

    Raises:
        UserError: `path` is a folder.
    """
    if path.is_dir():
        raise UserError(f"{path}: is a folder; name a file")
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.unfinished")
    try:
        yield unfinished
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def write_whole(path: Path, text: str) -> None:
    """Write `text` as a whole or not at all, whatever happens meanwhile."""
    with whole(path) as unfinished:
        unfinished.write_text(text, encoding="utf-8")
