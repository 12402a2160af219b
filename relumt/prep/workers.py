"""Functions of chunks of text files, on all cores.

Results come in the order of the chunks, whatever the number of processes, and only a few chunks are in memory.
"""

import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from relumt.child_processes import end_with_parent, signals_held_back
from relumt.errors import AttemptFailedError
from relumt.process import usable_cores
from relumt.text_files import Advance, Rewrite

CHUNK_BYTES = 1 << 20
"""Approximate size of a chunk. A process takes a second for one at most."""

PARALLEL_FROM_BYTES = 10 * CHUNK_BYTES
"""Smaller texts are processed in this process, because starting others takes seconds."""

MAX_PROCESSES = 16
CHUNKS_PER_PROCESS = 2
"""Number of chunks per process that are waiting, in work, or finished but not used yet."""

Task = TypeVar("Task")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Chunk:
    """Consecutive lines of a file that relumt wrote.

    Attributes:
        path: the file.
        start, end: the bytes of the lines.
    """

    path: Path
    start: int
    end: int

    def read_lines(self) -> list[str]:
        """Return the lines, without line ends."""
        with self.path.open("rb") as file:
            file.seek(self.start)
            text = file.read(self.end - self.start).decode("utf-8")
        return text.removesuffix("\n").split("\n")


def split_file(path: Path) -> Iterator[Chunk]:
    """Yield the chunks of a file, whose lines end at "\\n"."""
    size, start = path.stat().st_size, 0
    with path.open("rb") as file:
        while start < size:
            file.seek(start + CHUNK_BYTES)
            file.readline()
            end = min(file.tell(), size)
            yield Chunk(path, start, end)
            start = end


def map_chunks(function: Callable[[Chunk], Result], paths: Sequence[Path]) -> Iterator[Result]:
    """Yield the results of a function, which can be pickled, for all chunks of the files, in order.

    Raises:
        AttemptFailedError: a process was killed.
    """
    chunks = (chunk for path in paths for chunk in split_file(path))
    yield from map_in_order(function, chunks, num_processes(paths))


def num_processes(paths: Iterable[Path]) -> int:
    """Return how many processes to use for these files."""
    if sum(path.stat().st_size for path in paths) < PARALLEL_FROM_BYTES:
        return 1
    return min(usable_cores(), MAX_PROCESSES)


def map_in_order(function: Callable[[Task], Result], tasks: Iterable[Task], processes: int) -> Iterator[Result]:
    """Yield the results of a function for the tasks, in order; with one process, compute them in this one.

    Raises:
        AttemptFailedError: a process was killed.
    """
    if processes == 1:
        yield from map(function, tasks)
        return
    # Spawned, because forking while the progress bar's thread runs can deadlock.
    context = multiprocessing.get_context("spawn")
    executor = ProcessPoolExecutor(processes, context, _initialize_worker, (os.getpid(),))
    pending: deque[Future[Result]] = deque()
    try:
        for task in tasks:
            with signals_held_back():  # a worker whose parent ends before it says what to do prints a traceback
                pending.append(executor.submit(function, task))
            if len(pending) == processes * CHUNKS_PER_PROCESS:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    except BrokenProcessPool:
        raise AttemptFailedError(
            "a worker process was killed, perhaps because memory is short; free some memory and try again"
        ) from None
    finally:
        executor.shutdown(cancel_futures=True)


def _initialize_worker(parent: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # only the parent handles Ctrl-C
    end_with_parent(parent)


@dataclass(frozen=True)
class Rewriting:
    """A text file to rewrite line by line.

    Attributes:
        source: the file, written by relumt.
        destination: the file to write.
        rewrite: returns one new line for each line, and can be pickled.
    """

    source: Path
    destination: Path
    rewrite: Rewrite


def rewrite_files(rewritings: Sequence[Rewriting], advance: Advance) -> None:
    """Write the destinations; `advance` receives numbers of lines.

    Raises:
        AttemptFailedError: a process was killed.
    """
    for rewriting in rewritings:
        rewriting.destination.write_bytes(b"")
    tasks = ((rewriting, chunk) for rewriting in rewritings for chunk in split_file(rewriting.source))
    for rewritten in map_in_order(_rewrite_chunk, tasks, num_processes(item.source for item in rewritings)):
        with rewritten.destination.open("ab") as file:
            file.write(rewritten.content)
        advance(rewritten.num_lines)


@dataclass(frozen=True)
class _RewrittenChunk:
    destination: Path
    content: bytes
    num_lines: int


def _rewrite_chunk(task: tuple[Rewriting, Chunk]) -> _RewrittenChunk:
    rewriting, chunk = task
    lines = rewriting.rewrite(chunk.read_lines())
    return _RewrittenChunk(rewriting.destination, "".join(f"{line}\n" for line in lines).encode(), len(lines))
