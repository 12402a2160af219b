"""Messages to the user on stderr."""

import logging
import sys
import warnings
from collections.abc import Iterable
from typing import TypeVar

from relumt.errors import printable

Item = TypeVar("Item")


def quiet_fairseq() -> None:
    """Silence what fairseq and torch log while they load. Call this before importing fairseq.

    One of fairseq's modules configures the root logger at level DEBUG on import, unless it is already configured.
    """
    logging.basicConfig(level=logging.WARNING)
    logging.getLogger("fairseq").setLevel(logging.WARNING)
    logging.getLogger("relumt").setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", message=".*pin_memory")


def print_status(message: str) -> None:
    """Print a message of one line to stderr; stdout is reserved for results."""
    print(f"relumt: {printable(message)}", file=sys.stderr)


def track_on_stderr(items: Iterable[Item], title: str, total: int | None = None) -> Iterable[Item]:
    """Return the items, with a progress bar on stderr while they are consumed, if stderr is a terminal."""
    from rich.console import Console  # imported here, because most commands show no bar
    from rich.progress import track

    console = Console(file=sys.stderr)
    return track(items, title, total, console=console, disable=not console.is_terminal)
