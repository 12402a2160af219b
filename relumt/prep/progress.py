"""One line a step on stderr; on a terminal also a bar while the step runs."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from relumt.prep.lines import Advance


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
        started = time.monotonic()
        columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
        with Progress(
            *columns,
            console=self.console,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
            disable=not self.console.is_terminal,
        ) as bars:
            task = bars.add_task(f"prepare: {title}", total=total)
            yield lambda items: bars.advance(task, items)
        self.say(f"{title} ({time.monotonic() - started:.1f} s)")
