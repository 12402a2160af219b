"""Saves checkpoints, chooses the one to resume from, and finishes the copies that a killed process had not made.

A checkpoint is written beside its destination, sealed (`folder.py`) and flushed to the disk before it replaces
anything, so that a crash, a full disk or a power failure never damages the previous one.
"""

import hashlib
import shutil
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

import torch

from relumt.console import print_status
from relumt.errors import UserError
from relumt.files import atomic_file, remove_unfinished_files
from relumt.plugin.checkpoints.folder import (
    BEST_CHECKPOINT,
    LAST_CHECKPOINT,
    SEAL_LENGTH,
    SEAL_PREFIX,
    training_checkpoints,
)
from relumt.plugin.checkpoints.loading import UnreadableCheckpointError, count_updates, open_checkpoint_safely


class SealingWriter:
    """Writes an archive to a file and computes its checksum on the way; to be passed to `torch.save`.

    Attributes:
        error: the first error of the file, which PyTorch hides behind errors of its own.
    """

    def __init__(self, file: BinaryIO) -> None:
        self.error: OSError | None = None
        self._file = file
        self._hash = hashlib.sha256()

    def write(self, data: bytes | memoryview) -> int:
        """Write the next bytes of the archive."""
        self._hash.update(data)
        try:
            return self._file.write(data)
        except OSError as error:
            self.error = self.error or error
            raise

    def flush(self) -> None:
        """Pass on what the file has buffered."""
        self._file.flush()

    def seal(self) -> None:
        """Append the comment with the checksum to the complete archive, which ends with the length of the comment."""
        self._file.seek(-2, 2)
        self._file.write(SEAL_LENGTH.to_bytes(2, "little") + SEAL_PREFIX + self._hash.hexdigest().encode())


def save_checkpoint_durably(checkpoint: dict[str, Any], path: Path) -> None:
    """Save a sealed checkpoint; if that fails, `path` is unchanged and no other file remains.

    Raises:
        OSError: the file cannot be written.
    """
    with atomic_file(path) as unfinished, unfinished.open("wb") as file:
        writer = SealingWriter(file)
        try:
            torch.save(checkpoint, cast(IO[bytes], writer))  # torch.save calls only write and flush
        except RuntimeError:
            raise writer.error or RuntimeError from None
        writer.seal()


def copy_checkpoint_durably(source: Path, destination: Path) -> None:
    """Copy a checkpoint; if that fails, `destination` is unchanged and no other file remains.

    The copy is no link, so that damage to one file leaves the other intact.

    Raises:
        OSError: the file cannot be written.
    """
    with atomic_file(destination) as unfinished:
        shutil.copyfile(source, unfinished)


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
    for prefix in ("checkpoint", "crash.pt"):
        remove_unfinished_files(folder, prefix)
    for unfinished in folder.glob("c*.pt.tmp"):  # of stock fairseq
        unfinished.unlink(missing_ok=True)
    last = folder / LAST_CHECKPOINT
    others, updates, problem = [path for path in training_checkpoints(folder) if path != last], -1, "is missing"
    if not last.is_file() and not others:
        return 0
    if last.is_file():
        try:
            placed, updates, problem = last.lstat(), _count_updates(last), "is older than another"
            others = [path for path in others if path.stat().st_mtime_ns > max(placed.st_mtime_ns, placed.st_ctime_ns)]
        except UnreadableCheckpointError:
            problem = "is damaged"
    intact = {}
    for path in others:
        with suppress(UserError, OSError):
            intact[path] = _count_updates(path), path.stat().st_mtime_ns
    newest = max(intact, key=intact.__getitem__, default=last)
    if updates >= intact.get(newest, (0, 0))[0]:
        return updates
    if newest == last:
        raise UserError(
            f"{last} {problem}, and no other checkpoint in its folder is intact; restore one from a copy, or move the "
            "folder away to train from the beginning"
        )
    copy_checkpoint_durably(newest, last)
    updates, _ = intact[newest]
    print_status(f"{last} {problem}; resuming from the newest intact checkpoint, {newest.name} ({updates} updates)")
    return updates


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
    checkpoint = open_checkpoint_safely(last)
    updates, state = count_updates(checkpoint, last), checkpoint["extra_state"]
    if state.get("val_loss") is None or state["val_loss"] != state.get("best"):
        return
    problem = "is missing"
    if best.exists():
        try:
            problem = "is older" if _count_updates(best) < updates else ""
        except UnreadableCheckpointError:
            problem = "is damaged"
        except UserError:  # without the state of a training: a user stripped it, or put an average there
            return
    if problem:
        copy_checkpoint_durably(last, best)
        print_status(
            f"{best} {problem}; replaced by {last.name} ({updates} updates), which has the best validation loss"
        )


def _count_updates(path: Path) -> int:
    return count_updates(open_checkpoint_safely(path), path)
