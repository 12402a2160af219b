"""Checksums and permissions of files."""

import hashlib
import os
from pathlib import Path

from relumt.errors import UserError


def file_digest(path: Path, algorithm: str) -> str:
    """Return a file's checksum in hexadecimal; `algorithm` is a name that hashlib knows ("sha256", "md5")."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


def file_sha256(path: Path) -> str:
    """Return a file's SHA-256 checksum in hexadecimal."""
    return file_digest(path, "sha256")


def require_writable(folder: Path) -> None:
    """Raise UserError unless files can be written to `folder`, or it can be created."""
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        raise UserError(f"{folder}: {existing} is not a writable folder; choose another folder")
