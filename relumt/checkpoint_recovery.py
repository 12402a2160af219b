"""Chooses the checkpoint from which training resumes."""

from pathlib import Path

from relumt.checkpoint_folder import LAST_CHECKPOINT, training_checkpoints
from relumt.checkpoint_integrity import UnreadableCheckpointError
from relumt.checkpoint_saving import copy_checkpoint_durably, remove_unfinished_checkpoints
from relumt.checkpoints import count_updates, open_checkpoint_safely
from relumt.console import print_status
from relumt.errors import UserError


def recover_last_checkpoint(folder: Path) -> int:
    """Return the number of updates in checkpoint_last.pt, 0 if the folder has no checkpoint of a training.

    If checkpoint_last.pt is missing or damaged, it is replaced by a copy of the newest intact checkpoint. Files that a
    killed process left unfinished are removed.

    Raises:
        UserError: no checkpoint is intact, or checkpoint_last.pt contains code or no state of a training.
    """
    remove_unfinished_checkpoints(folder)
    checkpoints = training_checkpoints(folder)
    last = folder / LAST_CHECKPOINT
    if not checkpoints:
        return 0
    if last in checkpoints:
        try:
            return count_updates(open_checkpoint_safely(last), last)
        except UnreadableCheckpointError:
            problem = "is damaged"
    else:
        problem = "is missing"
    intact = _intact_checkpoints([path for path in checkpoints if path != last])
    if not intact:
        raise UserError(
            f"{folder}: {LAST_CHECKPOINT} {problem}, and none of the other {len(checkpoints) - (last in checkpoints)} "
            "checkpoints is intact; restore one from a copy, or move the folder away to train from the beginning"
        )
    newest = max(intact, key=intact.__getitem__)
    updates, _ = intact[newest]
    copy_checkpoint_durably(newest, last)
    print_status(f"{last} {problem}; resuming from the newest intact checkpoint, {newest.name} ({updates} updates)")
    return updates


def _intact_checkpoints(paths: list[Path]) -> dict[Path, tuple[int, float]]:
    """Return the usable checkpoints with their numbers of updates and modification times."""
    intact: dict[Path, tuple[int, float]] = {}
    for path in paths:
        try:
            intact[path] = count_updates(open_checkpoint_safely(path), path), path.stat().st_mtime
        except (UserError, OSError):
            continue
    return intact
