"""Texts inside the archives that corpora are published in, read without unpacking them to the disk."""

import gzip
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path
from typing import IO

from relumt.errors import UserError
from relumt.text_files import decode_lines, read_lines


def unpacked(raw: Path, member: str) -> list[Path]:
    """The files of an archive, gzipped or not, at their path in it or by their name alone, in the order of names."""
    by_name = () if "*" in member else (Path(member).name,)  # a pattern is of its archive's folder alone
    for pattern in (member, *by_name):
        for suffix in ("", ".gz"):
            if found := sorted(raw.glob(pattern + suffix)):
                return found
    return []


def member_lines(raw: Path, archive: str, member: str) -> Iterator[str]:
    """The lines of the texts in an archive whose path fits the pattern `member`, in the order of their names.

    Args:
        raw: folder of raw files, with the archive or what it holds.
        archive: name of a .tar, .tgz, .tar.gz or .zip file, or of a text, gzipped or not, which then is itself meant.
        member: path inside the archive, with * where several are meant; "" for a text.

    Raises:
        UserError: no such member, or a broken archive or text.
    """
    if not member:
        yield from read_lines(raw / archive)
    elif (raw / archive).is_file():
        with opened(raw / archive) as packed:
            names = [name for name in names_in(packed) if fnmatch(name.removeprefix("./"), member)]
            if not names:
                raise UserError(f"{raw / archive}: no {member} in it; get the archive again")
            for name in sorted(names):
                with open_member(packed, name) as file:
                    yield from decode_lines(file, f"{raw / archive}/{name}")
    else:
        for path in unpacked(raw, member):
            yield from read_lines(path)


@contextmanager
def opened(archive: Path) -> Iterator[tarfile.TarFile | zipfile.ZipFile]:
    """An archive to read from; raises UserError, also from the block, where it is broken."""
    try:
        with zipfile.ZipFile(archive) if archive.suffix == ".zip" else tarfile.open(archive) as packed:
            yield packed
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, OSError) as error:
        reason = str(error).partition("\n")[0]
        raise UserError(f"{archive}: broken ({reason}); delete it and get it again") from None


def names_in(packed: tarfile.TarFile | zipfile.ZipFile) -> list[str]:
    """The paths of an archive's files."""
    return packed.namelist() if isinstance(packed, zipfile.ZipFile) else packed.getnames()


def open_member(packed: tarfile.TarFile | zipfile.ZipFile, name: str) -> IO[bytes]:
    """A file in an archive, its own compression undone."""
    file = packed.open(name) if isinstance(packed, zipfile.ZipFile) else packed.extractfile(name)
    return gzip.open(file) if name.endswith(".gz") else file
