"""Reading checkpoints without running what they carry.

Two doors are watched. Pickled code: `torch.load` stays with `weights_only=True`, and only the one class is
allowed that fairseq itself stores. Strings: fairseq gives some of a checkpoint's settings to Python's `eval`,
so each must be a plain literal before a model is built from it.
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
"""Settings that fairseq-fixed 0.12.3.1 may `eval` when it builds or resumes from a checkpoint."""


class UnreadableCheckpointError(UserError):
    """A checkpoint that breaks off."""


def allow_fairseq_checkpoints() -> None:
    """Let `torch.load(weights_only=True)` read the argparse.Namespace in which fairseq stores a model's flags."""
    torch.serialization.add_safe_globals([Namespace])


def load_checkpoint_safely(path: str | Path) -> dict[str, Any]:
    """A fairseq checkpoint's content, on the CPU.

    Raises:
        UserError: no such file, no checkpoint, pickled code, or a setting that is more than a literal.
        UnreadableCheckpointError: it breaks off.
    """
    allow_fairseq_checkpoints()
    try:
        checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise UserError(f"{path}: no such checkpoint; train first (scripts/train.sh)") from None
    except pickle.UnpicklingError as error:
        raise UserError(
            f"{path}: refused, it is damaged or carries code ({shorten_message(error)}); use one from a source you trust"
        ) from None
    except (RuntimeError, EOFError, IndexError, KeyError, ValueError) as error:  # what torch.load says of other files
        raise UnreadableCheckpointError(
            f"{path}: not a readable checkpoint ({shorten_message(error)}); train again or copy again"
        ) from None
    if not isinstance(checkpoint, dict) or "model" not in checkpoint:
        raise UserError(f"{path}: not a fairseq checkpoint (it has no 'model'); give a checkpoint_*.pt")
    refuse_code_in_config({"cfg": checkpoint.get("cfg"), "args": checkpoint.get("args")})
    return checkpoint


def refuse_code_in_config(config: Any, where: str = "checkpoint") -> None:
    """Raise UserError if a setting that fairseq gives to `eval` is a string that is not a Python literal."""
    if isinstance(config, Namespace):
        config = vars(config)
    if not isinstance(config, Mapping):
        return
    for name, value in config.items():
        if name in EVALUATED_SETTINGS:
            for part in value if isinstance(value, list | tuple) else [value]:
                if isinstance(part, str) and not is_literal(part):
                    raise UserError(f"{where}: the setting {name}={part!r} is code, not a value; refused")
        else:
            refuse_code_in_config(value, where)


def is_literal(text: str) -> bool:
    """Whether `text` is a Python literal such as "(0.9, 0.98)"."""
    try:
        ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return False
    return True


def shorten_message(error: BaseException) -> str:
    """The first line of an exception's message, short enough for one line of output."""
    return str(error).strip().partition("\n")[0][:120]
