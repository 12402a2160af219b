"""Published files: downloaded, verified, and read without extracting archives to disk."""

import gzip
import lzma
import tarfile
import tomllib
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib.resources import files
from pathlib import Path
from typing import Any, cast

import requests
from rich.progress import DownloadColumn

from relumt.corpora.parallel import progress_step
from relumt.errors import AttemptFailedError, UserError, describe_error
from relumt.files import Advance, decode_lines, file_digest

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
        size: bytes, for the progress bar; None if unknown.
        request: how to request a file without URLs.
    """

    name: str
    urls: Sequence[str] = ()
    checksum: str | None = None
    size: int | None = None
    request: str = ""

    def is_at(self, path: Path) -> bool:
        """Return whether a file has the checksum of the published one, if that is known."""
        algorithm, _, digest = (self.checksum or "").partition(":")
        return not algorithm or file_digest(path, algorithm) == digest


SOURCES = {
    name: Source(name, **fields)
    for name, fields in tomllib.loads((files(__package__) / "sources.toml").read_text(encoding="utf-8")).items()
}
"""The files in sources.toml by name."""


def fetch(source: Source, folder: Path) -> Path:
    """Return the path of the file in `folder`, after downloading it or completing its download if necessary.

    Raises:
        UserError: the file differs from the published one, or is missing and has no URL.
        AttemptFailedError: no URL provided the published file.
    """
    path = folder / source.name
    partial = path.with_name(f"{path.name}.part")
    if path.is_file():
        if source.is_at(path):
            return path
        advice = f"delete it, or rename it to {partial.name} to download the rest"
        raise UserError(f"{path} differs from the published file (checksum); {advice}")
    if not source.urls:
        raise UserError(f"{path}: no such file, and it cannot be downloaded; {source.request}, and save it there")
    failures = []
    for url in source.urls:
        for _ in range(ATTEMPTS):
            try:
                with progress_step(f"download {source.name}", source.size, DownloadColumn) as advance:
                    download(url, partial, advance)
            except requests.RequestException as error:
                failure = f"{describe_error(error)} at {url}"
                if isinstance(error, requests.HTTPError):
                    break
                continue
            if source.is_at(partial):
                return partial.replace(path)
            partial.unlink()
            failure = f"a different file (checksum) at {url}"
            break
        failures.append(failure)
    raise AttemptFailedError(f"{path}: download failed ({'; '.join(failures)}); get {source.urls[0]} and save it there")


def download(url: str, partial: Path, advance: Advance) -> None:
    """Complete the file `partial`, which may hold the beginning of what is at `url`, or all of it.

    Raises:
        requests.RequestException: there is no file at `url`, or no connection, or it was lost.
    """
    offset = partial.stat().st_size if partial.exists() else 0
    # Without "identity" the server might compress the body, and its length would not be the file's.
    headers = {"Accept-Encoding": "identity", "Range": f"bytes={offset}-"}
    with requests.get(url, headers=headers, stream=True, timeout=TIMEOUT) as response:
        if offset and response.status_code == requests.codes.requested_range_not_satisfiable:
            return  # nothing is missing
        response.raise_for_status()
        if response.status_code != requests.codes.partial_content:
            offset = 0
        advance(offset)
        with partial.open("ab" if offset else "wb") as file:
            for chunk in response.iter_content(CHUNK_SIZE):
                file.write(chunk)
                advance(len(chunk))


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
