"""relumt: attention without softmax for machine translation.

`relumt.attention` is plain PyTorch. What fairseq registers is imported by `register()`, which happens by itself
when fairseq is already there: it is when `--user-dir` imports this package, and fairseq imports nothing of a
user directory but its tasks and models.
"""

import sys

__version__ = "0.1.0"


def register() -> None:
    """Register relumt's models, criteria and tasks with fairseq and let its checkpoints load; harmless to repeat."""
    import relumt.checkpoints
    import relumt.criterions.attention_regularization
    import relumt.models.mechanism_transformer
    import relumt.tasks.corpora

    relumt.checkpoints.allow_fairseq_checkpoints()


if "fairseq" in sys.modules:
    register()
