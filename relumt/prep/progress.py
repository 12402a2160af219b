"""One line a step on stderr; on a terminal also a bar with the time left while the step runs."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from relumt.text_files import Advance


class Steps:
    """Tells what is being done, on the stderr of the moment when it was made."""

    def __init__(self) -> None:
        self.console = Console(file=sys.stderr, highlight=False, markup=False, soft_wrap=True)

    def say(self, text: str) -> None:
        """Print one line."""
        self.console.print(f"prepare: {text}")

    @contextmanager
    def step(self, title: str, total: int | None = None) -> Iterator[Advance]:
        """Show a bar of `total` items while the block runs and a line with its time when it is done."""
        with self._bar(title, total, MofNCompleteColumn()) as advance:
            yield advance

    @contextmanager
    def transfer(self, title: str, size: int | None = None) -> Iterator[Advance]:
        """As `step`, of so many bytes."""
        with self._bar(title, size, DownloadColumn()) as advance:
            yield advance

    @contextmanager
    def _bar(self, title: str, total: int | None, amount: ProgressColumn) -> Iterator[Advance]:
        started = time.monotonic()
        times = TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn()
        with Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            amount,
            *times,
            console=self.console,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
            disable=not self.console.is_terminal,
        ) as bars:
            task = bars.add_task(f"prepare: {title}", total=total)
            yield lambda items: bars.advance(task, items)
        self.say(f"{title} ({time.monotonic() - started:.1f} s)")
