"""The state of a training in a checkpoint, as one hash."""

import hashlib
from pathlib import Path
from typing import Any

import torch

from relumt.plugin.checkpoints.loading import load_checkpoint_safely


def hash_training_state(path: Path) -> str:
    """Return the SHA-256 of everything in a checkpoint that decides how training goes on.

    That is the weights, the states of the optimizer and the learning rate's schedule, the number of updates, the
    position in the data and the best validation loss. Speeds and times are left out.
    """
    checkpoint = load_checkpoint_safely(path)
    extra_state = checkpoint["extra_state"]
    state = {
        "model": checkpoint["model"],
        "optimizer": checkpoint["last_optimizer_state"],
        "schedule": checkpoint["optimizer_history"][-1],
        "data": extra_state["train_iterator"],
        "best": extra_state["best"],
    }
    sha = hashlib.sha256()
    _update(sha, state)
    return sha.hexdigest()


def _update(sha: Any, value: Any) -> None:
    """Hash a value of nested dictionaries, lists, tensors and numbers."""
    if isinstance(value, dict):
        for key in sorted(value, key=str):
            sha.update(f"{key!r}:".encode())
            _update(sha, value[key])
    elif isinstance(value, list | tuple):
        sha.update(f"{len(value)} values".encode())
        for item in value:
            _update(sha, item)
    elif isinstance(value, torch.Tensor):
        sha.update(f"{value.dtype} {tuple(value.shape)}".encode())
        sha.update(value.contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    else:
        sha.update(repr(value).encode())
