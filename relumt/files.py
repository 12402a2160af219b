"""Files that appear complete or not at all, JSON whose format is a type, checksums, and text.

What is unfinished lies beside the result, hidden, as .NAME.PROCESS.unfinished. New content is on disk before it
replaces anything, so that a crash of the machine does not lose both.

Text is read so that fairseq sees the same lines and words. fairseq splits lines at a lone carriage return, too, and
words at all Unicode whitespace (U+00A0, U+2028, U+3000, …). Here lines end at "\\n" only, and `normalize_line` turns
all other whitespace into plain spaces.
"""

import gzip
import hashlib
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import IO, TypeVar, cast

import msgspec

from relumt.errors import UserError

Format = TypeVar("Format")

UNFINISHED = ".unfinished"

Advance = Callable[[int], object]
"""Advances a progress bar by a number of lines."""

Rewrite = Callable[[list[str]], list[str]]
"""Returns one new line for each line."""

# Control characters other than whitespace, and the byte-order mark: invisible, and some tools fail on them.
INVISIBLE = re.compile("[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\ufeff]")


def file_digest(path: Path, algorithm: str) -> str:
    """Return a file's checksum in hexadecimal; `algorithm` is a name that hashlib knows ("sha256", "md5")."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


def file_sha256(path: Path) -> str:
    """Return a file's SHA-256 checksum in hexadecimal."""
    return file_digest(path, "sha256")


def changed_files(folder: Path, checksums: Mapping[str, str]) -> list[str]:
    """Return the names of the files of a folder that are missing or do not have these SHA-256."""
    return [
        name
        for name, checksum in checksums.items()
        if not (folder / name).is_file() or file_sha256(folder / name) != checksum
    ]


def require_writable(folder: Path) -> Path:
    """Return `folder` or its nearest parent that is there; raise UserError unless files can be written to it."""
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        raise UserError(f"{folder}: {existing} is not a writable folder; choose another folder")
    return existing


def sync(path: Path) -> None:
    """Wait until a file, or the list of names in a folder, is on disk; some file systems cannot sync folders."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        with suppress(OSError) if path.is_dir() else nullcontext():
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write to; its content replaces `path` if the block succeeds.

    Missing parent folders are created. If the block raises, the temporary file is removed and `path` is unchanged. What
    must not be replaced, such as a pipe or /dev/null, is yielded itself.
    """
    if path.exists() and (not path.is_file() or path.is_relative_to("/dev")):
        yield path
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}{UNFINISHED}")
    try:
        yield unfinished
        sync(unfinished)
        unfinished.replace(path)
        sync(path.parent)
    finally:
        unfinished.unlink(missing_ok=True)


def remove_unfinished_files(folder: Path, prefix: str) -> None:
    """Remove what killed processes left of files in `folder` whose names begin with `prefix`."""
    for path in folder.glob(f".{prefix}*{UNFINISHED}"):
        path.unlink(missing_ok=True)


@contextmanager
def atomic_files(paths: Sequence[Path]) -> Iterator[list[Path]]:
    """Yield a temporary path for each of several files that belong together, such as the sides of a bitext.

    If the block succeeds, all of them are replaced. An error or a signal while that happens leaves some of them out,
    but never new content of one beside old content of another. If the block raises, nothing changes.
    """
    with ExitStack() as stack:
        unfinished = [stack.enter_context(atomic_file(path)) for path in paths]
        yield unfinished
        for path in paths[:-1]:  # the stack replaces the last file first
            path.unlink(missing_ok=True)


def write_text_atomically(path: Path, text: str) -> None:
    """Write `text` to `path` in UTF-8, completely or not at all."""
    with atomic_file(path) as unfinished:
        unfinished.write_text(text, encoding="utf-8")


# JSON: readable when written, and validated completely or refused in one line


def encode_json(content: object) -> str:
    """Return dataclasses or other content as the text of a JSON file, indented and with a line break at the end."""
    return msgspec.json.format(msgspec.json.encode(content), indent=2).decode() + "\n"


def decode_json(text: str | bytes, file_format: type[Format], name: str, advice: str) -> Format:
    """Decode JSON and validate it; `name` begins the error message, as `advice` ends it ("prepare the data-bin again").

    Raises:
        UserError: the text is not JSON, or not of the format.
    """
    try:
        return msgspec.json.decode(text, type=file_format)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:  # ValueError: invalid UTF-8 or a number too long
        reason = str(error).partition("\n")[0][:120]
        raise UserError(f"{name}: not in the expected format ({reason}); {advice}") from None


def read_json(path: Path, file_format: type[Format], advice: str) -> Format:
    """Read a JSON file; raises OSError if it cannot be read, UserError as `decode_json` does."""
    return decode_json(path.read_bytes(), file_format, str(path), advice)


class _Header(msgspec.Struct):
    schema: int | None = None


def read_versioned(path: Path, file_format: type[Format], schema: int, advice: str) -> Format:
    """Do what `read_json` does; raise UserError if the file has another schema."""
    content = path.read_bytes()
    found = decode_json(content, _Header, str(path), advice).schema
    if found != schema:
        raise UserError(f"{path}: expected schema {schema}, found {found}; {advice}")
    return decode_json(content, file_format, str(path), advice)


# Text: lines that end at "\n" only


def normalize_line(line: str) -> str:
    """Remove control characters and the byte-order mark, and separate words by single plain spaces."""
    if not line.isprintable():  # a quick check, which most lines without their line end pass
        line = INVISIBLE.sub("", line)
    return " ".join(line.split())


def read_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a UTF-8 file from outside, gzipped or not, split at "\\n" only and not normalized.

    Raises:
        UserError: the file is missing, is not UTF-8, or is a damaged gzip file; the message names the line.
    """
    with open_bytes(path) as file:
        yield from decode_lines(file, str(path))


def load_text(path: Path) -> list[str]:
    """Return the lines that `read_lines` yields, without line ends; raises `UserError` as it does."""
    return [line.removesuffix("\n") for line in read_lines(path)]


def open_bytes(path: Path) -> IO[bytes]:
    """Open a file from outside, gzipped or not; raises `UserError` if it is missing."""
    try:
        return cast(IO[bytes], gzip.open(path) if path.suffix == ".gz" else path.open("rb"))
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; check the path") from None


def decode_lines(file: IO[bytes], name: str) -> Iterator[str]:
    """Yield the lines of an open UTF-8 file that messages call `name`, without a byte-order mark before the first.

    Raises `UserError` as `read_lines` does.
    """
    number = 0
    try:
        for line in file:
            number += 1
            text = line.decode("utf-8")
            yield text.removeprefix("\ufeff") if number == 1 else text
    except UnicodeDecodeError as error:
        raise UserError(
            f"{name}:{number}: not valid UTF-8 (byte 0x{error.object[error.start]:02x} at position "
            f"{error.start + 1} of the line); convert the file to UTF-8, for example with iconv"
        ) from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UserError(f"{name}: damaged file after line {number} ({error}); copy it again") from None


def read_clean_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a file that relumt wrote, without line ends."""
    with open_text(path, "r") as file:
        for line in file:
            yield line.removesuffix("\n")


def open_text(path: Path, mode: str) -> IO[str]:
    """Open a UTF-8 file whose lines end at "\\n" only."""
    return path.open(mode, encoding="utf-8", newline="\n")


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write lines that have no line ends."""
    with open_text(path, "w") as file:
        file.writelines(line + "\n" for line in lines)


def normalize_file(source: Path, destination: Path, advance: Advance) -> int:
    """Write the normalized lines of `source`, a file from outside, to `destination`; return their number.

    Raises:
        UserError: as `read_lines`.
    """
    count = 0
    with open_text(destination, "w") as output:
        for line in read_lines(source):
            output.write(normalize_line(line.removesuffix("\n")) + "\n")
            count += 1
            advance(1)
    return count
