"""Loads checkpoints without running code that they may contain.

Code can hide in two places. In pickled objects: `torch.load` is called with `weights_only=True`, which allows only one
class beyond its own list, the `argparse.Namespace` that fairseq stores. In strings: fairseq passes some settings of a
checkpoint to Python's `eval`, so each of them must be a plain literal before a model is built.
"""

import ast
import pickle
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from relumt.errors import UserError

EVALUATED_SETTINGS = (
    "adaptive_softmax_cutoff",
    "adam_betas",
    "adam_eps",
    "decoder_xformers_att_config",
    "encoder_xformers_att_config",
    "xformers_att_config",
    "lr",
    "update_freq",
)
"""Settings that fairseq-fixed 0.12.3.1 may `eval` when it builds a model or resumes from a checkpoint."""


class UnreadableCheckpointError(UserError):
    """The file is truncated or not a checkpoint."""


def allow_fairseq_checkpoints() -> None:
    """Let `torch.load(weights_only=True)` read the argparse.Namespace in which fairseq stores a model's arguments."""
    torch.serialization.add_safe_globals([Namespace])


def load_checkpoint_safely(path: str | Path) -> dict[str, Any]:
    """Load a fairseq checkpoint to the CPU.

    Raises:
        UserError: the file is missing, is not a fairseq checkpoint, or contains code.
        UnreadableCheckpointError: the file is truncated or of another format.
    """
    allow_fairseq_checkpoints()
    try:
        checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise UserError(f"{path}: no such checkpoint; train a model first (scripts/train.sh)") from None
    except pickle.UnpicklingError as error:
        raise UserError(
            f"{path}: rejected, it is damaged or contains code ({shorten_message(error)}); use a checkpoint from a "
            "source you trust"
        ) from None
    except (RuntimeError, EOFError, IndexError, KeyError, ValueError) as error:  # torch.load on files of other formats
        raise UnreadableCheckpointError(
            f"{path}: not a readable checkpoint ({shorten_message(error)}); train or copy it again"
        ) from None
    if not isinstance(checkpoint, dict) or "model" not in checkpoint:
        raise UserError(f"{path}: not a fairseq checkpoint, since it has no entry 'model'; pass a checkpoint_*.pt")
    reject_code_in_config({"cfg": checkpoint.get("cfg"), "args": checkpoint.get("args")})
    return checkpoint


def reject_code_in_config(config: Any) -> None:
    """Raise UserError if a setting that fairseq passes to `eval` is a string but not a Python literal."""
    if isinstance(config, Namespace):
        config = vars(config)
    if not isinstance(config, Mapping):
        return
    for name, value in config.items():
        if name in EVALUATED_SETTINGS:
            for item in value if isinstance(value, list | tuple) else [value]:
                if isinstance(item, str) and not is_literal(item):
                    raise UserError(f"rejected the setting {name}={item!r}: expected a Python literal, found code")
        else:
            reject_code_in_config(value)


def is_literal(text: str) -> bool:
    """Return whether `text` is a Python literal such as "(0.9, 0.98)"."""
    try:
        ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return False
    return True


def shorten_message(error: BaseException) -> str:
    """Return at most 120 characters of the first line of an exception's message."""
    return str(error).strip().partition("\n")[0][:120]
