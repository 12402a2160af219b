"""Texts inside archives, read without extracting them to disk."""

import gzip
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path
from typing import IO, cast

from relumt.errors import UserError
from relumt.text_files import decode_lines, read_lines

Archive = tarfile.TarFile | zipfile.ZipFile


def find_extracted(raw: Path, member: str) -> list[Path]:
    """Return the files in `raw` that were extracted from an archive, sorted by name.

    Args:
        raw: folder of raw files.
        member: path inside the archive, or a pattern with *. Files are looked for at that path and, unless it is a
            pattern, also by their name alone. They may be gzipped.
    """
    by_name = () if "*" in member else (Path(member).name,)
    for pattern in (member, *by_name):
        for suffix in ("", ".gz"):
            if found := sorted(raw.glob(pattern + suffix)):
                return found
    return []


def read_member(raw: Path, archive: str, member: str) -> Iterator[str]:
    """Yield the lines of every file in an archive whose path matches `member`, in order of their names.

    Args:
        raw: folder with the archive or with the files extracted from it.
        archive: name of a .tar, .tgz, .tar.gz or .zip file.
        member: path inside the archive, or a pattern with *.

    Raises:
        UserError: nothing matches, or the archive or a text is broken.
    """
    path = raw / archive
    if not path.is_file():
        for extracted in find_extracted(raw, member):
            yield from read_lines(extracted)
        return
    with open_archive(path) as opened:
        names = opened.namelist() if isinstance(opened, zipfile.ZipFile) else opened.getnames()
        matches = [name for name in sorted(names) if fnmatch(name.removeprefix("./"), member)]
        if not matches:
            raise UserError(f"{path}: contains no {member}; download the archive again")
        for name in matches:
            with open_member(opened, name) as file:
                yield from decode_lines(file, f"{path}/{name}")


@contextmanager
def open_archive(path: Path) -> Iterator[Archive]:
    """Open an archive for reading; raise `UserError` if it is broken, also while the block reads it."""
    try:
        with zipfile.ZipFile(path) if path.suffix == ".zip" else tarfile.open(path) as archive:
            yield archive
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, OSError) as error:
        reason = str(error).partition("\n")[0]
        raise UserError(f"{path}: broken archive ({reason}); delete it and download it again") from None


def open_member(archive: Archive, name: str) -> IO[bytes]:
    """Open a file in an archive, decompressed if it is gzipped."""
    file = archive.open(name) if isinstance(archive, zipfile.ZipFile) else archive.extractfile(name)
    assert file is not None, f"{name} is a folder"
    return cast(IO[bytes], gzip.open(file)) if name.endswith(".gz") else file
