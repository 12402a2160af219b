"""Reading and rewriting text by lines, such that fairseq sees the same lines and the same words.

fairseq reads with universal newlines, so a lone carriage return splits a line, and its tokeniser splits words
at every Unicode white space (U+00A0, U+2028, U+3000 ...). Here lines end at "\\n" only, and every run of white
space inside one becomes a plain space.
"""

import gzip
import multiprocessing
import os
import re
import signal
import zlib
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import IO

from relumt.errors import UserError

Advance = Callable[[int], object]
Rewrite = Callable[[list[str]], list[str]]

BATCH_LINES = 10_000
PARALLEL_FROM_LINES = 100_000
MAX_PROCESSES = 16

# Control characters that are no white space, and the byte-order mark: invisible, and some tools choke on them.
INVISIBLE = re.compile("[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\ufeff]")


def normalize_line(line: str) -> str:
    """Return `line` without control characters and with single plain spaces between its words."""
    return " ".join(INVISIBLE.sub("", line).split())


def find_text_file(prefix: str, language: str) -> Path:
    """Return the file `prefix.language` or `prefix.language.gz`; raises `UserError` if neither is there."""
    plain = Path(f"{prefix}.{language}")
    compressed = Path(f"{prefix}.{language}.gz")
    for path in (plain, compressed):
        if path.is_file():
            return path
    raise UserError(f"{plain}: no such file, nor {compressed}; give a prefix P such that P.{language} is the text")


def read_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a UTF-8 file, gzipped or not, split at "\\n" only and not yet normalised.

    Raises `UserError` if there is no such file, and with the line where the text is not UTF-8 or the gzip file is
    broken.
    """
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            yield from decode_lines(file, str(path))
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; check the path") from None


def decode_lines(file: Iterable[bytes], name: str) -> Iterator[str]:
    """Yield the lines of an open file of UTF-8 text; raises `UserError` as `read_lines`."""
    number = 0
    try:
        for line in file:
            number += 1
            yield line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{name}:{number}: not valid UTF-8 (byte 0x{error.object[error.start]:02x} at position "
            f"{error.start + 1} of the line); convert the file to UTF-8, with iconv for example"
        ) from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UserError(f"{name}: broken gzip file after line {number} ({error}); copy it again") from None


def read_clean_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a file that an earlier step wrote, without their line ends."""
    with open_text(path, "r") as file:
        for line in file:
            yield line.removesuffix("\n")


def open_text(path: Path, mode: str) -> IO[str]:
    """Open a text file of ours: UTF-8, lines end at "\\n" only."""
    return path.open(mode, encoding="utf-8", newline="\n")


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write one line a sentence."""
    with open_text(path, "w") as file:
        file.writelines(line + "\n" for line in lines)


def normalize_file(source: Path, destination: Path, advance: Advance) -> int:
    """Write the normalised lines of `source` (the user's) to `destination`; return how many there are."""
    count = 0
    with open_text(destination, "w") as output:
        for line in read_lines(source):
            output.write(normalize_line(line) + "\n")
            count += 1
            advance(1)
    return count


def num_processes(lines: int) -> int:
    """Return how many processes are worth their start for a file of so many lines."""
    return 1 if lines < PARALLEL_FROM_LINES else min(os.cpu_count() or 1, MAX_PROCESSES)


def rewrite_file(source: Path, destination: Path, rewrite: Rewrite, processes: int, advance: Advance) -> None:
    """Write `rewrite` of the lines of `source`, batch by batch and in order, to `destination`.

    With more than one process `rewrite` is pickled, hence a function of a module or a bound method.
    """
    with open_text(destination, "w") as output:
        for batch in _rewritten(batches(read_clean_lines(source)), rewrite, processes):
            output.writelines(line + "\n" for line in batch)
            advance(len(batch))


def batches(lines: Iterator[str]) -> Iterator[list[str]]:
    """Yield lists of up to `BATCH_LINES` lines."""
    while batch := list(islice(lines, BATCH_LINES)):
        yield batch


def _rewritten(parts: Iterator[list[str]], rewrite: Rewrite, processes: int) -> Iterator[list[str]]:
    if processes == 1:
        yield from map(rewrite, parts)
        return
    # Spawned, since forking under the progress bar's thread can deadlock. Ctrl-C is the parent's to handle.
    context = multiprocessing.get_context("spawn")
    with context.Pool(processes, signal.signal, (signal.SIGINT, signal.SIG_IGN)) as pool:
        yield from pool.imap(rewrite, parts)
