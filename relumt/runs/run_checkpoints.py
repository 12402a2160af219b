"""The checkpoints in a run's folder."""

import shutil
from pathlib import Path
from typing import Any

from relumt.atomic_output import atomic_file
from relumt.checkpoint_averaging import last_checkpoints, write_average
from relumt.console import print_status
from relumt.errors import UserError

CHECKPOINTS = "checkpoints"
"""Name of the folder of checkpoints in a run's folder."""


def has_checkpoints(run: Path) -> bool:
    """Return whether a run's folder contains any checkpoint."""
    return any((run / CHECKPOINTS).glob("*.pt"))


def best_checkpoint(run: Path) -> Path:
    """Return the checkpoint with the best validation loss, or the last one if training had no validation.

    Raises:
        UserError: there is neither.
    """
    for name in ("checkpoint_best.pt", "checkpoint_last.pt"):
        if (run / CHECKPOINTS / name).is_file():
            return run / CHECKPOINTS / name
    raise UserError(f"{run / CHECKPOINTS}: no checkpoint; delete {run} and train again")


def averaged_checkpoint(run: Path, count: int) -> Path:
    """Return the average of the last `count` checkpoints, writing it if it is missing or older than one of them.

    Raises:
        UserError: there are fewer checkpoints.
    """
    last = last_checkpoints(run / CHECKPOINTS, count)
    averaged = run / CHECKPOINTS / f"checkpoint_average_{count}.pt"
    if not averaged.is_file() or averaged.stat().st_mtime < max(path.stat().st_mtime for path in last):
        write_average(last, averaged)
    return averaged


def count_updates(run: Path) -> int:
    """Return the number of updates in the checkpoint from which fairseq would resume, 0 if there is none.

    Raises:
        UserError: the checkpoint contains code.
    """
    checkpoint = _load_last_checkpoint(run / CHECKPOINTS)
    return 0 if checkpoint is None else checkpoint["optimizer_history"][-1]["num_updates"]


def _load_last_checkpoint(folder: Path) -> dict[str, Any] | None:
    """Load checkpoint_last.pt, after restoring it from its original if it is missing or truncated.

    fairseq writes a checkpoint under its first name and then copies it to the others. If it is killed in between, the
    newest of the others is the original of checkpoint_last.pt.
    """
    last = folder / "checkpoint_last.pt"
    others = [path for path in folder.glob("checkpoint*.pt") if path != last and "average" not in path.name]
    if not last.is_file() and not others:
        return None
    from relumt.checkpoints import UnreadableCheckpointError, load_checkpoint_safely  # imports PyTorch

    if last.is_file():
        try:
            return load_checkpoint_safely(last)
        except UnreadableCheckpointError:
            if not others:
                raise
    newest = max(others, key=lambda path: path.stat().st_mtime)
    checkpoint = load_checkpoint_safely(newest)
    with atomic_file(last) as unfinished:
        shutil.copyfile(newest, unfinished)
    print_status(f"{last} is missing or truncated; resuming from {newest.name}, which fairseq was copying to it")
    return checkpoint
