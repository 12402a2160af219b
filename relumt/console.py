"""Messages to the user on stderr."""

import logging
import sys
import warnings


def quiet_fairseq() -> None:
    """Silence what fairseq and torch log while they load. Call this before importing fairseq.

    One of fairseq's modules configures the root logger at level DEBUG on import, unless it is already configured.
    """
    logging.basicConfig(level=logging.WARNING)
    logging.getLogger("fairseq").setLevel(logging.WARNING)
    logging.getLogger("relumt").setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", message=".*pin_memory")


def print_status(message: str) -> None:
    """Print a message to stderr; stdout is reserved for results."""
    print(f"relumt: {message}", file=sys.stderr)
