"""Commands of ours around fairseq tell the user what they do; what it logs of its loading is no help."""

import logging
import warnings


def quiet_fairseq() -> None:
    """Let fairseq and torch report no step of loading. To be called before fairseq is imported.

    A module of fairseq's sets up logging for everybody, at level DEBUG, if nobody did before.
    """
    logging.basicConfig(level=logging.WARNING)
    logging.getLogger("fairseq").setLevel(logging.WARNING)
    logging.getLogger("relumt").setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", message=".*pin_memory")
