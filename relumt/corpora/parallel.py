"""Functions of the lines of text files, on all cores, and a progress bar.

Results come in the order of the lines, whatever the number of processes, and only a few chunks are in memory.
"""

import multiprocessing
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Column

from relumt.errors import AttemptFailedError, duration, print_status
from relumt.files import Advance, Rewrite
from relumt.process import end_with_parent, usable_cores

CHUNK_BYTES = 1 << 20
"""Approximate size of a chunk. A process takes a second for one at most."""

PARALLEL_FROM_BYTES = 10 * CHUNK_BYTES
"""Smaller texts are processed in this process, because starting others takes seconds."""

MAX_PROCESSES = 16
CHUNKS_PER_PROCESS = 8
"""Number of chunks per process that are in memory."""

FIRST_LINE = 10.0
"""Seconds until the first line about progress, if stderr is no terminal."""

Item = TypeVar("Item")
Result = TypeVar("Result")
Chunk = tuple[Path, int, int]
"""Consecutive lines of a file that relumt wrote: its path, and the first byte and the one after the last."""


@contextmanager
def progress_step(
    title: str, total: int | None = None, amount: type[ProgressColumn] = MofNCompleteColumn
) -> Iterator[Advance]:
    """Show a bar of `total` items on a terminal while the block runs, then print how long it took.

    Without a terminal, a line with the time left is printed after FIRST_LINE seconds and whenever the time since the
    start has doubled. The block receives a function that advances the bar. Give `amount=DownloadColumn` if the items
    are bytes.
    """
    started, done, next_line = time.monotonic(), 0, FIRST_LINE
    console = Console(stderr=True)
    time_left = TimeRemainingColumn(table_column=Column(min_width=7, no_wrap=True))  # else long titles cut it
    columns = TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), time_left, amount()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        task = bars.add_task(title, total=total)

        def advance(items: int) -> None:
            nonlocal done, next_line
            bars.advance(task, items)
            done += items
            elapsed = time.monotonic() - started
            if not console.is_terminal and total and 0 < done < total and elapsed >= next_line:
                next_line = 2 * elapsed
                print_status(f"{title}: {done / total:.0%}, {duration(elapsed * (total - done) / done)} left")

        yield advance
    print_status(f"{title} ({time.monotonic() - started:.1f} s)")


def track(items: Iterable[Item], title: str, total: int) -> Iterator[Item]:
    """Yield the items, with `progress_step` while they are consumed."""
    with progress_step(title, total) as advance:
        for item in items:
            yield item
            advance(1)


def map_chunks(function: Callable[[list[str]], Result], paths: Sequence[Path]) -> Iterator[Result]:
    """Yield the results of a function, which can be pickled, for the lines of each chunk of the files, in order.

    Raises:
        AttemptFailedError: a process was killed.
    """
    chunks = (chunk for path in paths for chunk in split_file(path))
    call = partial(_call, function)
    if (processes := num_processes(paths)) == 1:
        yield from map(call, chunks)
        return
    # Spawned, because forking while the progress bar's thread runs can deadlock.
    context = multiprocessing.get_context("spawn")
    try:
        with ProcessPoolExecutor(processes, context, _initialize_worker, (os.getpid(),)) as executor:
            while batch := list(islice(chunks, processes * CHUNKS_PER_PROCESS)):
                yield from executor.map(call, batch)
    except BrokenProcessPool:
        raise AttemptFailedError("a worker process was killed; free some memory and try again") from None


def split_file(path: Path) -> Iterator[Chunk]:
    """Yield the chunks of a file, whose lines end at "\\n"."""
    size, start = path.stat().st_size, 0
    with path.open("rb") as file:
        while start < size:
            file.seek(start + CHUNK_BYTES)
            file.readline()
            end = min(file.tell(), size)
            yield path, start, end
            start = end


def num_processes(paths: Sequence[Path]) -> int:
    """Return how many processes to use for these files."""
    is_small = sum(path.stat().st_size for path in paths) < PARALLEL_FROM_BYTES
    return 1 if is_small else min(usable_cores(), MAX_PROCESSES)


def _initialize_worker(parent: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # only the parent handles Ctrl-C
    end_with_parent(parent)


def _call(function: Callable[[list[str]], Result], chunk: Chunk) -> Result:
    path, start, end = chunk
    with path.open("rb") as file:
        file.seek(start)
        text = file.read(end - start).decode("utf-8")
    return function(text.removesuffix("\n").split("\n"))


def rewrite_file(source: Path, destination: Path, rewrite: Rewrite, advance: Advance) -> None:
    """Write a new line for each line of a file; `rewrite` can be pickled, `advance` receives numbers of lines."""
    with destination.open("wb") as file:
        for content, num_lines in map_chunks(partial(_rewrite, rewrite), [source]):
            file.write(content)
            advance(num_lines)


def _rewrite(rewrite: Rewrite, lines: list[str]) -> tuple[bytes, int]:
    return "".join(f"{line}\n" for line in rewrite(lines)).encode(), len(lines)


def count_words(texts: Sequence[Path]) -> Counter[str]:
    """Return how often each word occurs in texts that relumt wrote."""
    counts: Counter[str] = Counter()
    for counted in map_chunks(_count_words, texts):
        counts.update(counted)
    return counts


def _count_words(lines: list[str]) -> dict[str, int]:
    return dict(Counter(word for line in lines for word in line.split()))
