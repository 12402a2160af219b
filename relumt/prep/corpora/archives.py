"""Texts inside archives, read without extracting them to disk."""

import errno
import gzip
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from itertools import zip_longest
from pathlib import Path
from typing import IO, cast

from relumt.errors import UserError
from relumt.text_files import decode_lines, read_lines

Archive = tarfile.TarFile | zipfile.ZipFile

BROKEN = (
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    NotImplementedError,  # a ZIP file with an unknown compression
    RuntimeError,  # an encrypted ZIP file
    ValueError,
)
"""What reading a broken archive raises, besides OSError."""


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

    Nothing is written to disk, so the paths in an archive are only names.

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
        for name in find_members(opened, path, member):
            with open_member(opened, name) as file:
                yield from decode_lines(file, f"{path}/{name}")


@contextmanager
def open_archive(path: Path) -> Iterator[Archive]:
    """Open an archive for reading; raise `UserError` if it is broken, also while the block reads it."""
    try:
        with zipfile.ZipFile(path) if path.suffix == ".zip" else tarfile.open(path) as archive:
            yield archive
    except (*BROKEN, OSError) as error:
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise  # a full disk or a bad sector, for example; bz2 sets no number, and zipfile seeks before the file
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise UserError(f"{path}: broken archive ({reason}); delete it and download it again") from None


def find_members(archive: Archive, path: Path, member: str) -> list[str]:
    """Return the names of the files in the archive at `path` that match `member`, sorted.

    Raises:
        UserError: there is none, two have the same name, or one is a link or a device.
    """
    if isinstance(archive, zipfile.ZipFile):
        is_file = {info.filename: not info.is_dir() for info in archive.infolist()}
        names = archive.namelist()
    else:
        is_file = {info.name: info.isfile() for info in archive.getmembers()}
        names = archive.getnames()
        assert archive.fileobj is not None, "the archive is open"
        while archive.fileobj.read(1 << 20):  # the checksum of compressed data is at its end
            pass
    found = sorted(name for name in names if fnmatchcase(name.removeprefix("./"), member))
    if not found:
        raise UserError(f"{path}: contains no {member}; download the archive again")
    for name, next_name in zip_longest(found, found[1:]):
        if name == next_name or not is_file[name]:
            problem = "more than once" if name == next_name else "as something else than a file"
            raise UserError(f"{path}: contains {name!r} {problem}; delete it and download it again")
    return found


def open_member(archive: Archive, name: str) -> IO[bytes]:
    """Open a file in an archive, decompressed if it is gzipped."""
    file = archive.open(name) if isinstance(archive, zipfile.ZipFile) else archive.extractfile(name)
    assert file is not None, f"{name} is no file"
    return cast(IO[bytes], gzip.open(file)) if name.endswith(".gz") else file
