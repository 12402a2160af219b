"""Loads checkpoints without running code that they may contain.

Code can hide in two places. In pickled objects: `torch.load` is called with `weights_only=True`, which allows only one
class beyond its own list, the `argparse.Namespace` that fairseq stores. In strings: fairseq passes some settings of a
checkpoint to Python's `eval`, so each of them must be a plain literal before a model is built.
"""

import pickle
from argparse import Namespace
from pathlib import Path
from typing import Any

import torch

from relumt.checkpoint_config import reject_code_in_config
from relumt.errors import UserError


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


def shorten_message(error: BaseException) -> str:
    """Return at most 120 characters of the first line of an exception's message."""
    return str(error).strip().partition("\n")[0][:120]
