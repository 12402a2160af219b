"""relumt: attention without softmax for machine translation.

`relumt.attention` is plain PyTorch. `register()` imports everything that fairseq has to know. It runs on import if
fairseq is loaded already, as it is under `--user-dir`: fairseq imports this package, but only tasks and models in it.
"""

import sys

__version__ = "0.1.0"


def register() -> None:
    """Register relumt's models, criterions and tasks with fairseq, and let it save and load checkpoints safely."""
    import relumt.checkpoints.fairseq_hooks
    import relumt.criterions.attention_regularization
    import relumt.models.mechanism_transformer
    import relumt.tasks.corpora

    relumt.checkpoints.fairseq_hooks.install()


if "fairseq" in sys.modules:
    register()
