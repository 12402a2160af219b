"""Reading and rewriting text so that fairseq sees the same lines and the same words.

fairseq reads text with universal newlines, so a lone carriage return splits a line, and it splits words at all Unicode
whitespace (U+00A0, U+2028, U+3000, …). Here lines end at "\\n" only, and `normalize_line` turns all other whitespace
into plain spaces.
"""

import gzip
import lzma
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, cast

from relumt.errors import UserError

Advance = Callable[[int], object]
"""Advances a progress bar by a number of lines."""

Rewrite = Callable[[list[str]], list[str]]
"""Returns one new line for each line."""

MAX_LINE_BYTES = 1 << 24
"""No sentence is as long, but what is no text may have no line end within the memory of the machine."""

# Control characters other than whitespace, and the byte-order mark: invisible, and some tools fail on them.
INVISIBLE = re.compile("[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\ufeff]")


def normalize_line(line: str) -> str:
    """Remove control characters and the byte-order mark, and separate words by single plain spaces."""
    if not line.isprintable():  # a quick check, which most lines without their line end pass
        line = INVISIBLE.sub("", line)
    return " ".join(line.split())


def find_text_file(prefix: str, language: str) -> Path:
    """Return the path of `prefix.language` or `prefix.language.gz`; raises `UserError` unless one of them is there."""
    plain, compressed = Path(f"{prefix}.{language}"), Path(f"{prefix}.{language}.gz")
    if plain.exists() or compressed.exists():
        return plain if plain.exists() else compressed
    raise UserError(f"{plain}: no such file, nor {compressed}; pass a prefix P such that P.{language} is the text")


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
        while line := file.readline(MAX_LINE_BYTES):
            number += 1
            if len(line) == MAX_LINE_BYTES:
                raise UserError(f"{name}:{number}: longer than {MAX_LINE_BYTES} bytes; is this a text?")
            text = line.decode("utf-8")
            yield text.removeprefix("\ufeff") if number == 1 else text
    except UnicodeDecodeError as error:
        raise UserError(
            f"{name}:{number}: not valid UTF-8 (byte 0x{error.object[error.start]:02x} at position "
            f"{error.start + 1} of the line); convert the file to UTF-8, for example with iconv"
        ) from None
    except (gzip.BadGzipFile, EOFError, zlib.error, lzma.LZMAError) as error:
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
