"""Progress on stderr: a bar while a step runs, if stderr is a terminal, and a line when it is done."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, ProgressColumn

from relumt.console import print_status
from relumt.text_files import Advance


@contextmanager
def progress_step(
    title: str, total: int | None = None, amount: type[ProgressColumn] = MofNCompleteColumn
) -> Iterator[Advance]:
    """Show a bar of `total` items while the block runs, then print how long it took.

    The block receives a function that advances the bar. Give `amount=DownloadColumn` if the items are bytes.
    """
    started = time.monotonic()
    console = Console(stderr=True)
    columns = *Progress.get_default_columns(), amount()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        task = bars.add_task(title, total=total)
        yield lambda items: bars.advance(task, items)
    print_status(f"{title} ({time.monotonic() - started:.1f} s)")
