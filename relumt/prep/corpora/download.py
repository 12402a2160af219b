"""Downloads of published files: verified, from mirrors, and resumed where a connection was lost."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import requests
from rich.progress import DownloadColumn

from relumt.errors import AttemptFailedError, UserError, quote
from relumt.files import file_digest, try_lock
from relumt.prep.corpora.sources import Source
from relumt.prep.progress import progress_step
from relumt.text_files import Advance

ATTEMPTS = 3
"""How often to resume from one URL before trying the next."""

TIMEOUT = 30
"""Seconds without a byte after which a connection counts as lost."""

CHUNK_SIZE = 1 << 16
"""Bytes per read. At most this much is lost with a connection."""

LENGTH = re.compile(r"\d{1,18}", re.ASCII)


class InterruptedDownloadError(OSError):
    """A connection ended before the file did."""


def fetch(source: Source, folder: Path) -> Path:
    """Return the path of the file in `folder`, after downloading it or completing its download if necessary.

    Raises:
        UserError: the file differs from the published one, or another process is downloading it.
        AttemptFailedError: no URL provided it.
    """
    path = folder / source.name
    partial = path.with_name(f"{path.name}.part")
    if path.is_file():
        size = path.stat().st_size
        if source.size is not None and size < source.size:
            raise UserError(
                f"{path}: has {size} of {source.size} bytes; rename it to {partial.name} to download the rest, or "
                "delete it to download it again"
            )
        if not has_checksum(path, source):
            raise UserError(f"{path} differs from the published file (checksum); delete it to download it again")
        return path
    if not source.urls:
        raise UserError(f"{path}: no such file, and it cannot be downloaded; {source.request}, and save it there")
    with lock(partial):
        return download_from_mirrors(source, partial, path)


@contextmanager
def lock(partial: Path) -> Iterator[None]:
    """Keep other processes from downloading to `partial`; an empty file is removed in the end.

    Raises:
        UserError: another process is downloading to it.
    """
    with partial.open("ab") as file:
        if not try_lock(file.fileno()):
            raise UserError(f"{partial}: another process is downloading this file; wait for it")
        try:
            yield
        finally:
            if partial.is_file() and partial.stat().st_size == 0:
                partial.unlink()


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
            except InterruptedDownloadError as error:
                failure = f"{error} from {url}"
                continue
            except requests.HTTPError as error:
                status = error.response.status_code if error.response is not None else "unknown"
                failure = f"status {status} at {url}"
                break
            except requests.RequestException as error:
                failure = f"{type(error).__name__} at {url}"  # its message holds a whole chain of exceptions
                break
            if has_checksum(partial, source):
                return partial.replace(path)
            partial.unlink(missing_ok=True)
            failure = f"a different file (checksum) at {url}"
            break
        failures.append(failure)
    raise AttemptFailedError(f"{path}: download failed ({'; '.join(failures)}); get {source.urls[0]} and save it there")


def has_checksum(path: Path, source: Source) -> bool:
    """Return whether a file has the checksum of the published one, if that is known."""
    if source.checksum is None:
        return True
    algorithm, _, expected = source.checksum.partition(":")
    return file_digest(path, algorithm) == expected


def download(url: str, partial: Path, size: int | None, advance: Advance) -> None:
    """Complete the file `partial`, which may hold the beginning of what is at `url`.

    Raises:
        InterruptedDownloadError: the connection was lost; `partial` holds what arrived.
        requests.RequestException: there is no file at `url`, or no connection.
    """
    offset = partial.stat().st_size if partial.is_file() else 0
    if offset and offset == size:
        return
    # Without "identity" the server might compress the body, and its length would not be the file's.
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={offset}-"} if offset else {})
    with requests.get(url, headers=headers, stream=True, timeout=TIMEOUT) as response:
        if response.status_code == requests.codes.requested_range_not_satisfiable:
            partial.unlink(missing_ok=True)  # it holds more bytes than the file; start again
            raise InterruptedDownloadError("too many bytes")
        response.raise_for_status()
        is_rest = response.status_code == requests.codes.partial_content
        content_range = response.headers.get("Content-Range", "")
        if is_rest and content_range and not content_range.startswith(f"bytes {offset}-"):
            raise InterruptedDownloadError(f"{quote(content_range)} instead of the bytes from {offset}")
        save_body(response, partial, offset if is_rest else 0, size, advance)


def save_body(response: requests.Response, partial: Path, offset: int, size: int | None, advance: Advance) -> None:
    """Write the body of a response after the first `offset` bytes of `partial`.

    Raises:
        InterruptedDownloadError: the body is incomplete, or longer than `size`, and then it is removed.
    """
    length = LENGTH.fullmatch(response.headers.get("Content-Length", ""))
    expected = offset + int(length[0]) if length else size
    advance(offset)
    is_lost = False
    with partial.open("ab" if offset else "wb") as file:
        try:
            for chunk in response.iter_content(CHUNK_SIZE):
                file.write(chunk)
                advance(len(chunk))
                if size is not None and file.tell() > size:
                    partial.unlink()
                    raise InterruptedDownloadError(f"more than {size} bytes")
        except requests.RequestException:
            is_lost = True
        received = file.tell()
    if is_lost or (expected is not None and received < expected):
        raise InterruptedDownloadError(f"{received} of {expected or 'unknown'} bytes")
