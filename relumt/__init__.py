"""relumt: attention without softmax for machine translation.

`relumt.attention` is plain PyTorch. `register()` imports everything that fairseq has to know. It runs on import if a
supported fairseq is loaded already, as it is under `--user-dir`: fairseq imports this package, but only tasks and
models in it. `relumt.tasks.user_dir` refuses any other fairseq; importing `relumt.attention` beside one changes
nothing in it.
"""

import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from relumt.runs.inference.translator import load as load

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Return `load` when it is used; importing it here would import fairseq."""
    if name == "load":
        from relumt.fairseq_version import prepare_fairseq_import

        prepare_fairseq_import()
        return importlib.import_module("relumt.runs.inference.translator").load
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def register() -> None:
    """Register relumt's models, criterions and tasks with fairseq, and let it save and load checkpoints safely.

    For the whole process, products in fp32 get the fastest accurate backend of this CPU
    (`relumt.plugin.cpu_products`), and few compiled ones are kept (`relumt.plugin.compiled_products`).

    Raises:
        UserError: fairseq is missing or of a version that relumt was not tested with.
    """
    from relumt.fairseq_version import require_supported_fairseq

    require_supported_fairseq()
    import relumt.plugin.checkpoints.fairseq_hooks
    import relumt.plugin.criterions.attention_regularization  # registers the criterion that it extends, too
    import relumt.plugin.model.mechanism_transformer
    import relumt.plugin.search.fairseq_hook
    import relumt.plugin.tasks.corpora
    import relumt.plugin.tasks.worker_cleanup
    from relumt.plugin.compiled_products import limit_compiled_products
    from relumt.plugin.cpu_products import select_fp32_backend

    relumt.plugin.checkpoints.fairseq_hooks.install()
    relumt.plugin.tasks.worker_cleanup.install()
    relumt.plugin.search.fairseq_hook.install()
    limit_compiled_products()
    select_fp32_backend()


if "fairseq" in sys.modules:
    from relumt.fairseq_version import is_fairseq_accepted

    if is_fairseq_accepted():
        register()
