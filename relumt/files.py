"""What preparation and runs both need of files."""

import hashlib
from pathlib import Path


def digest(path: Path, kind: str) -> str:
    """A file's checksum of a kind that hashlib has ("sha256", "md5"), in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, kind).hexdigest()


def sha256(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    return digest(path, "sha256")


def write_whole(path: Path, text: str) -> None:
    """Write `text` as a whole or not at all, whatever happens meanwhile."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.unfinished")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(path)
