"""Published files and the texts in them: downloaded, verified, and read without extracting archives to disk."""

import fcntl
import gzip
import lzma
import os
import tarfile
import tomllib
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib.resources import files
from pathlib import Path
from typing import Any, cast

import requests
from rich.progress import DownloadColumn

from relumt.corpora.prepare import progress_step
from relumt.errors import AttemptFailedError, UserError, describe_error
from relumt.files import file_digest
from relumt.text_files import Advance, decode_lines, read_lines

ATTEMPTS = 3
"""How often to resume from one URL before trying the next."""

TIMEOUT = 30
"""Seconds without a byte after which a connection counts as lost."""

CHUNK_SIZE = 1 << 16
"""Bytes per read. At most this much is lost with a connection."""

BROKEN = (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, gzip.BadGzipFile, RuntimeError)
"""What reading a broken archive raises; RuntimeError is for encrypted ZIP files."""


@dataclass(frozen=True)
class Source:
    """A published file.

    Attributes:
        name: its name in the folder of raw files.
        urls: where to download it: the official URL first, then mirrors. Empty if it is only available on request.
        checksum: "sha256:…" or "md5:…", None if unknown.
        size: bytes, None if unknown.
        request: how to request a file without URLs.
    """

    name: str
    urls: Sequence[str] = ()
    checksum: str | None = None
    size: int | None = None
    request: str = ""

    def is_at(self, path: Path) -> bool:
        """Return whether a file has the size and the checksum of the published one, if they are known."""
        algorithm, _, digest = (self.checksum or "").partition(":")
        has_size = self.size in (None, path.stat().st_size)
        return has_size and (not algorithm or file_digest(path, algorithm) == digest)


SOURCES = {
    name: Source(name, **fields)
    for name, fields in tomllib.loads((files(__package__) / "sources.toml").read_text(encoding="utf-8")).items()
}
"""The files in sources.toml by name."""


def fetch(source: Source, folder: Path) -> Path:
    """Return the path of the file in `folder`, after downloading it or completing its download if necessary.

    Raises:
        UserError: the file differs from the published one.
        AttemptFailedError: no URL provided it.
    """
    path = folder / source.name
    partial = path.with_name(f"{path.name}.part")
    if not path.is_file():
        if not source.urls:
            raise UserError(f"{path}: no such file, and it cannot be downloaded; {source.request}, and save it there")
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            with suppress(OSError):  # some file systems have no locks
                fcntl.flock(descriptor, fcntl.LOCK_EX)  # wait for other processes that download to this folder
            return path if path.is_file() else download_from_mirrors(source, partial, path)
        finally:
            os.close(descriptor)
    if not source.is_at(path):
        advice = f"delete it, or rename it to {partial.name} to download the rest"
        raise UserError(f"{path} differs from the published file (size or checksum); {advice}")
    return path


def download_from_mirrors(source: Source, partial: Path, path: Path) -> Path:
    """Complete the file `partial` from one of the URLs and rename it to `path`; return `path`.

    Raises:
        AttemptFailedError: no URL provided the published file.
    """
    failures = []
    for url in source.urls:
        for _ in range(ATTEMPTS):
            try:
                with progress_step(f"download {source.name}", source.size, DownloadColumn) as advance:
                    download(url, partial, source.size, advance)
            except requests.RequestException as error:
                failure = f"{describe_error(error)} at {url}"
                if isinstance(error, requests.HTTPError):
                    break
                continue
            if source.is_at(partial):
                return partial.replace(path)
            partial.unlink()
            failure = f"a different file (size or checksum) at {url}"
            break
        failures.append(failure)
    raise AttemptFailedError(f"{path}: download failed ({'; '.join(failures)}); get {source.urls[0]} and save it there")


def download(url: str, partial: Path, size: int | None, advance: Advance) -> None:
    """Complete the file `partial`, which may hold the beginning of what is at `url`.

    Raises:
        requests.RequestException: there is no file at `url`, or no connection, or it was lost.
    """
    offset = partial.stat().st_size if partial.exists() else 0
    if offset and offset == size:
        return
    # Without "identity" the server might compress the body, and its length would not be the file's.
    headers = {"Accept-Encoding": "identity", "Range": f"bytes={offset}-"}
    with requests.get(url, headers=headers, stream=True, timeout=TIMEOUT) as response:
        if response.status_code == requests.codes.requested_range_not_satisfiable:
            partial.unlink(missing_ok=True)
            raise requests.ConnectionError("more bytes than the file has; starting again")
        response.raise_for_status()
        if response.status_code != requests.codes.partial_content:
            offset = 0
        advance(offset)
        with partial.open("ab" if offset else "wb") as file:
            for chunk in response.iter_content(CHUNK_SIZE):
                file.write(chunk)
                advance(len(chunk))


@dataclass(frozen=True)
class PublishedText:
    """One side of a parallel text as it is published: a file, a member of an archive, or a column of either.

    Attributes:
        source: the published file.
        member: path inside it if it is an archive; with * if there are several texts. Empty if the file is the text.
        separator: what separates source and target if a line holds both.
        column: which column of such a line is this side.
    """

    source: Source
    member: str = ""
    separator: str | None = None
    column: int = 0

    @property
    def path(self) -> Path:
        """The path to show in messages."""
        return Path(self.source.name) / self.member

    def fetch(self, raw: Path) -> list[Path]:
        """Return the files in `raw` that hold the text, downloaded unless they or extracted ones are there."""
        if not (raw / self.source.name).is_file() and (extracted := self.find_extracted(raw)):
            return extracted
        return [fetch(self.source, raw)]

    def find_extracted(self, raw: Path) -> list[Path]:
        """Return the files in `raw` that were extracted from the archive, in its folders or not, sorted by name."""
        names = (self.member, self.member if "*" in self.member else Path(self.member).name) if self.member else ()
        found = (sorted(raw.glob(name + suffix)) for name in names for suffix in ("", ".gz"))
        return next(filter(None, found), [])

    def lines(self, raw: Path) -> Iterator[str]:
        """Yield the lines of the text; raise `UserError` if a line should have two columns and does not."""
        path = raw / self.source.name
        for number, line in enumerate(self._lines(path, raw), start=1):
            columns = line.split(self.separator) if self.separator else [line, line]
            if len(columns) != 2:
                raise UserError(f"{self.path}:{number}: {len(columns)} columns, expected two with {self.separator!r}")
            yield columns[self.column]

    def _lines(self, path: Path, raw: Path) -> Iterator[str]:
        if self.member and path.is_file():
            yield from read_member(path, self.member)
        else:
            for extracted in self.find_extracted(raw) or [path]:
                yield from read_lines(extracted)


ParallelText = tuple[PublishedText, PublishedText]  # source and target


def published_pair(file: str, languages: Sequence[str], member: str = "") -> ParallelText:
    """Return a parallel text of sources.toml; {} in the name of the file, or in `member`, stands for the language."""
    source, target = (PublishedText(SOURCES[file.format(lang)], member.format(lang)) for lang in languages)
    return source, target


def read_member(path: Path, member: str) -> Iterator[str]:
    """Yield the lines of every file in an archive (.zip or .tar, compressed or not) that matches a pattern, by name.

    Nothing is written to disk, so the paths in an archive are only names.

    Raises:
        UserError: nothing matches, or the archive or a text is broken.
    """
    try:
        with cast(Any, zipfile.ZipFile(path) if path.suffix == ".zip" else tarfile.open(path)) as archive:
            is_zip = isinstance(archive, zipfile.ZipFile)
            names = archive.namelist() if is_zip else [info.name for info in archive.getmembers() if info.isfile()]
            found = sorted(name for name in names if fnmatchcase(name.removeprefix("./"), member))
            for name in found:
                with archive.open(name) if is_zip else archive.extractfile(name) as file:
                    unzipped: Any = gzip.GzipFile(fileobj=file) if name.endswith(".gz") else file
                    yield from decode_lines(unzipped, f"{path}/{name}")
    except BROKEN as error:
        raise UserError(f"{path}: broken archive ({describe_error(error)}); delete it and download it again") from None
    if not found:
        raise UserError(f"{path}: contains no {member}; download the archive again")
