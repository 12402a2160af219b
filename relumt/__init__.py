"""relumt: attention without softmax for machine translation.

`relumt.attention` is plain PyTorch. `register()` imports everything that fairseq has to know. It runs on import if
fairseq is loaded already, as it is under `--user-dir`: fairseq imports this package, but only tasks and models in it.
"""

import sys

__version__ = "0.1.0"


def register() -> None:
    """Register relumt's models, criterions and tasks with fairseq, and let it save and load checkpoints safely.

    Products in fp32 get the fastest accurate backend of this CPU for the whole process (`relumt.cpu_products`).
    """
    import relumt.checkpoints.fairseq_hooks
    import relumt.criterions.attention_regularization  # registers the criterion that it extends, too
    import relumt.models.mechanism_transformer
    import relumt.search.fairseq_hook
    import relumt.tasks.corpora
    from relumt.cpu_products import select_fp32_backend

    relumt.checkpoints.fairseq_hooks.install()
    relumt.search.fairseq_hook.install()
    select_fp32_backend()


if "fairseq" in sys.modules:
    register()
