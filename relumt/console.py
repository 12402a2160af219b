"""What the user is told on stderr: what our commands do, and not what fairseq logs of its loading."""

import logging
import sys
import warnings


def quiet_fairseq() -> None:
    """Let fairseq and torch report no step of loading. To be called before fairseq is imported.

    A module of fairseq's sets up logging for everybody, at level DEBUG, if nobody did before.
    """
    logging.basicConfig(level=logging.WARNING)
    logging.getLogger("fairseq").setLevel(logging.WARNING)
    logging.getLogger("relumt").setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", message=".*pin_memory")


def say(message: str) -> None:
    """Tell the user something on stderr; stdout may hold results."""
    print(f"relumt: {message}", file=sys.stderr)
