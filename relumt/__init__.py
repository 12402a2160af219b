"""relumt: attention without softmax for machine translation.

`relumt.attention` is plain PyTorch, and importing it changes nothing in fairseq. `register()` registers everything that
fairseq has to know, as `--user-dir` does: fairseq then imports `relumt.tasks.user_dir`.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from relumt.runs.inference.translator import load as load

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Return `load` when it is used; importing it here would import fairseq."""
    if name == "load":
        from relumt.installation import prepare_fairseq_import

        prepare_fairseq_import()
        return importlib.import_module("relumt.runs.inference.translator").load
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def register() -> None:
    """Register relumt's models, criterions and tasks with fairseq, and let it save and load checkpoints safely.

    For the whole process, products in fp32 get the fastest accurate backend of this CPU, and few compiled ones are kept
    (`relumt.plugin.cpu_products`).

    Raises:
        UserError: fairseq is missing or of a version that relumt was not tested with.
    """
    from relumt.installation import require_supported_fairseq

    require_supported_fairseq()
    importlib.import_module("relumt.plugin.registration")
