"""The checkpoints in a run's folder."""

from pathlib import Path

from relumt.checkpoints.averaging import last_checkpoints, write_average
from relumt.checkpoints.folder import LAST_CHECKPOINT, training_checkpoints
from relumt.checkpoints.integrity import is_intact
from relumt.errors import UserError

CHECKPOINTS = "checkpoints"
"""Name of the folder of checkpoints in a run's folder."""


def has_checkpoints(run: Path) -> bool:
    """Return whether a run's folder contains a checkpoint from which training can resume."""
    return bool(training_checkpoints(run / CHECKPOINTS))


def best_checkpoint(run: Path) -> Path:
    """Return the checkpoint with the best validation loss, or the last one if training had no validation.

    Raises:
        UserError: there is neither.
    """
    for name in ("checkpoint_best.pt", LAST_CHECKPOINT):
        if (run / CHECKPOINTS / name).is_file():
            return run / CHECKPOINTS / name
    raise UserError(f"{run / CHECKPOINTS}: no checkpoint; delete {run} and train again")


def averaged_checkpoint(run: Path, count: int) -> Path:
    """Return the average of the last `count` checkpoints, writing it if it is missing, damaged or older than them.

    Raises:
        UserError: there are fewer checkpoints, or they cannot be averaged.
    """
    last = last_checkpoints(run / CHECKPOINTS, count)
    averaged = run / CHECKPOINTS / f"checkpoint_average_{count}.pt"
    newest = max(path.stat().st_mtime for path in last)
    if not (averaged.is_file() and averaged.stat().st_mtime >= newest and is_intact(averaged)):
        write_average(last, averaged)
    return averaged


def count_updates(run: Path) -> int:
    """Return the number of updates in the checkpoint from which fairseq will resume, 0 if there is none.

    If checkpoint_last.pt is missing or damaged, it is first replaced by the newest intact checkpoint.

    Raises:
        UserError: no checkpoint is intact, or checkpoint_last.pt contains code.
    """
    if not has_checkpoints(run):
        return 0
    from relumt.checkpoints.recovery import recover_last_checkpoint  # imports PyTorch, which takes seconds

    return recover_last_checkpoint(run / CHECKPOINTS)
