"""Loads checkpoints without running code that they may contain, and only if they are intact.

Code can hide in two places. In pickled objects: `torch.load` is called with `weights_only=True`, which allows only few
classes beyond its own list: the `argparse.Namespace` that fairseq stores, and the NumPy arrays of numbers in which it
stores the statistics of --eval-bleu. In names and settings that fairseq would use:
`relumt.checkpoints.vetting` allows only known ones.
"""

import pickle
import re
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy
import torch

from relumt.checkpoints.folder import describe_intact_checkpoints
from relumt.checkpoints.integrity import UnreadableCheckpointError, verify_integrity
from relumt.checkpoints.vetting import RESUMED, vet_checkpoint
from relumt.errors import UserError

UNSUPPORTED = re.compile(r"Unsupported (global|class|operand)\S* (GLOBAL )?\S{1,80}")
"""What torch.load says of a name that `weights_only=True` does not allow."""


def allow_fairseq_checkpoints() -> None:
    """Let `torch.load(weights_only=True)` read a Namespace of arguments and NumPy arrays of numbers."""
    reconstruct: Any = numpy.empty(0).__reduce__()[0]
    named = [(reconstruct, f"numpy.{core}.multiarray._reconstruct") for core in ("core", "_core")]  # NumPy 1 and 2
    dtypes = [type(numpy.dtype(name)) for name in ("int64", "float64", "float32")]
    torch.serialization.add_safe_globals([Namespace, *named, numpy.ndarray, numpy.dtype, *dtypes])


def load_checkpoint_safely(path: str | Path) -> dict[str, Any]:
    """Load a fairseq checkpoint to the CPU.

    Raises:
        UserError: the file is missing, is not a fairseq checkpoint, or contains code.
        UnreadableCheckpointError: the file is truncated, damaged or of another format.
    """
    with name_intact_checkpoints(Path(path)):
        return read_checkpoint(Path(path), mmap=False)


def open_checkpoint_safely(path: str | Path) -> dict[str, Any]:
    """Check a fairseq checkpoint as `load_checkpoint_safely` does, but leave its tensors in the file until used."""
    with name_intact_checkpoints(Path(path)):
        return read_checkpoint(Path(path), mmap=True)


@contextmanager
def name_intact_checkpoints(path: Path) -> Iterator[None]:
    """If the checkpoint turns out to be damaged, add to the message which others in its folder are intact."""
    try:
        yield
    except UnreadableCheckpointError as error:
        raise UnreadableCheckpointError(f"{error}; {describe_intact_checkpoints(path)}") from None


def read_checkpoint(path: Path, mmap: bool) -> dict[str, Any]:
    """Load a checkpoint safely; with `mmap`, leave its tensors in the file until used. See `load_checkpoint_safely`."""
    allow_fairseq_checkpoints()
    try:
        verify_integrity(path)
        checkpoint = torch.load(path, map_location="cpu", weights_only=True, mmap=mmap)
    except FileNotFoundError:
        raise UserError(f"{path}: no such checkpoint; train a model first (scripts/train.sh)") from None
    except pickle.UnpicklingError as error:
        raise UserError(
            f"{path}: rejected, it contains code ({shorten_message(error)}); use a checkpoint from a source you trust"
        ) from None
    except (UserError, OSError, MemoryError):
        raise
    except Exception as error:  # a forged archive can make torch.load raise anything
        raise UnreadableCheckpointError(f"{path}: not a readable checkpoint ({shorten_message(error)})") from None
    if not isinstance(checkpoint, dict) or "model" not in checkpoint:
        raise UserError(f"{path}: not a fairseq checkpoint, since it has no entry 'model'; pass a checkpoint_*.pt")
    vet_checkpoint(checkpoint, path)
    return checkpoint


def count_updates(checkpoint: dict[str, Any], path: Path) -> int:
    """Return the number of updates after which a checkpoint, loaded with a function above, was saved.

    Raises:
        UserError: training cannot resume from it: it is an average, or somebody removed what translation does not need.
    """
    if missing := [name for name in RESUMED if not checkpoint.get(name)]:
        raise UserError(
            f"{path}: training cannot resume from it, since it has no {', '.join(missing)}; use a checkpoint that "
            "fairseq-train saved"
        )
    updates: int = checkpoint["optimizer_history"][-1]["num_updates"]
    return updates


def shorten_message(error: BaseException) -> str:
    """Return what torch.load does not allow, or at most 120 characters of the first line of an exception's message."""
    message = str(error).strip()
    if refused := UNSUPPORTED.search(message):
        return refused[0]
    return message.partition("\n")[0][:120]
