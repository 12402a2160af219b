"""Chooses the checkpoint from which training resumes, and finishes the copies that a killed process had not made."""

from pathlib import Path

from relumt.checkpoints.folder import BEST_CHECKPOINT, LAST_CHECKPOINT, training_checkpoints
from relumt.checkpoints.integrity import UnreadableCheckpointError
from relumt.checkpoints.loading import count_updates, read_checkpoint
from relumt.checkpoints.saving import copy_checkpoint_durably, remove_unfinished_checkpoints
from relumt.console import print_status
from relumt.errors import UserError

SAVING_NS = 60 * 10**9
"""Nanoseconds in which a checkpoint that was written is also on the disk and has its name."""


def recover_last_checkpoint(folder: Path) -> int:
    """Return the number of updates in checkpoint_last.pt, 0 if the folder has no checkpoint of a training.

    If checkpoint_last.pt is missing or damaged, it is replaced by a copy of the newest intact checkpoint. So it is if a
    checkpoint with more updates was saved later: a process that was killed had not yet copied that one. A user who puts
    an earlier checkpoint in its place is not overruled: moving, copying and linking change the time of its inode.
    Files that killed processes left unfinished are removed.

    Raises:
        UserError: no checkpoint is intact, or checkpoint_last.pt contains code or no state of a training.
    """
    if not folder.is_dir():
        return 0
    remove_unfinished_checkpoints(folder)
    last = folder / LAST_CHECKPOINT
    others = [path for path in training_checkpoints(folder) if path != last]
    if not last.is_file():
        return _replace_last_checkpoint(last, others, "is missing") if others else 0
    try:
        updates = count_updates(read_checkpoint(last, mmap=True), last)
    except UnreadableCheckpointError:
        return _replace_last_checkpoint(last, others, "is damaged")
    saved_later = [path for path in others if _was_saved_later(path, last)]
    newer = [path for path, (count, _) in _intact_checkpoints(saved_later).items() if count > updates]
    return _replace_last_checkpoint(last, newer, "is older than another") if newer else updates


def _was_saved_later(other: Path, last: Path) -> bool:
    """Return whether a checkpoint was saved after the last one was put in its place.

    Moving or copying a file there changes the time of its inode only. That time says nothing if the other file's has
    changed since it was saved, too, as for a copy of the whole folder.
    """
    saved, placed = other.stat(), last.lstat()
    is_as_saved = saved.st_ctime_ns - saved.st_mtime_ns < SAVING_NS
    return saved.st_mtime_ns > (max(placed.st_mtime_ns, placed.st_ctime_ns) if is_as_saved else placed.st_mtime_ns)


def recover_best_checkpoint(folder: Path) -> None:
    """Replace checkpoint_best.pt by a copy of checkpoint_last.pt if a killed process had not yet made that copy.

    fairseq saves a numbered checkpoint, copies it to checkpoint_best.pt if its validation loss is the best so far or
    equal to it, and then to checkpoint_last.pt. `recover_last_checkpoint`, to be called first, makes the second copy.
    Training would never make the first one, because it resumes with the best loss of checkpoint_last.pt.

    Raises:
        UserError: checkpoint_last.pt is damaged, or contains code or no state of a training.
    """
    last, best = folder / LAST_CHECKPOINT, folder / BEST_CHECKPOINT
    if not last.is_file():
        return
    checkpoint = read_checkpoint(last, mmap=True)
    updates, state = count_updates(checkpoint, last), checkpoint["extra_state"]
    if state.get("val_loss") is None or state["val_loss"] != state.get("best"):
        return
    if problem := _find_problem(best, updates):
        copy_checkpoint_durably(last, best)
        print_status(
            f"{best} {problem}; replaced by {last.name} ({updates} updates), which has the best validation loss"
        )


def _find_problem(best: Path, updates: int) -> str:
    """Say why checkpoint_best.pt is not the checkpoint after so many updates or a later one; "" if it may be."""
    if not best.exists():
        return "is missing"
    try:
        return "is older" if count_updates(read_checkpoint(best, mmap=True), best) < updates else ""
    except UnreadableCheckpointError:
        return "is damaged"
    except UserError:  # without the state of a training: a user stripped it, or put an average there
        return ""


def _replace_last_checkpoint(last: Path, others: list[Path], problem: str) -> int:
    """Replace checkpoint_last.pt by the newest intact one of the others, and return that one's number of updates."""
    intact = _intact_checkpoints(others)
    if not intact:
        raise UserError(
            f"{last} {problem}, and no other checkpoint in its folder is intact; restore one from a copy, or move the "
            "folder away to train from the beginning"
        )
    newest = max(intact, key=intact.__getitem__)
    updates, _ = intact[newest]
    copy_checkpoint_durably(newest, last)
    print_status(f"{last} {problem}; resuming from the newest intact checkpoint, {newest.name} ({updates} updates)")
    return updates


def _intact_checkpoints(paths: list[Path]) -> dict[Path, tuple[int, int]]:
    """Return the usable checkpoints with their numbers of updates and modification times."""
    intact: dict[Path, tuple[int, int]] = {}
    for path in paths:
        try:
            intact[path] = count_updates(read_checkpoint(path, mmap=True), path), path.stat().st_mtime_ns
        except (UserError, OSError):
            continue
    return intact
