"""Saves checkpoints, and chooses the one to resume from.

A checkpoint is written beside its destination and flushed to the disk before it replaces anything, so that a crash, a
full disk or a power failure never damages the previous one.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch

from relumt.errors import AttemptFailedError, UserError, print_status
from relumt.files import atomic_file, remove_unfinished_files
from relumt.plugin.checkpoints.folder import LAST_CHECKPOINT, is_intact, training_checkpoints
from relumt.plugin.checkpoints.loading import load_checkpoint_safely


def save_checkpoint_durably(checkpoint: dict[str, Any], path: Path) -> None:
    """Save a checkpoint; if that fails, `path` is unchanged and no other file remains.

    Raises:
        AttemptFailedError: the file cannot be written.
    """
    # To a path, PyTorch would write its name into the archive, and the same checkpoint would have other bytes.
    with _replacing(path) as unfinished, unfinished.open("wb") as file:
        torch.save(checkpoint, file)


def copy_checkpoint_durably(source: Path, destination: Path) -> None:
    """Copy a checkpoint; if that fails, `destination` is unchanged and no other file remains.

    The copy is no link, so that damage to one file leaves the other intact.

    Raises:
        AttemptFailedError: the file cannot be written.
    """
    with _replacing(destination) as unfinished:
        shutil.copyfile(source, unfinished)


@contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    try:
        with atomic_file(path) as unfinished:
            yield unfinished
    except (OSError, RuntimeError) as error:  # PyTorch raises the second, for example when the disk is full
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error).partition("\n")[0]
        raise AttemptFailedError(
            f"{path}: could not be saved ({reason}); the checkpoints saved before are intact: free space or repair the "
            "disk, and start the same command again"
        ) from None


def recover_last_checkpoint(folder: Path) -> None:
    """If checkpoint_last.pt is missing or damaged, replace it by a copy of the newest intact checkpoint, if any.

    A process that was killed before it copied a newer checkpoint to checkpoint_last.pt does the updates between the two
    again. Files that killed processes left unfinished are removed.

    Args:
        folder: of the checkpoints.

    Raises:
        UserError: there are checkpoints, but none is intact.
    """
    remove_unfinished_files(folder, "c")
    last, found = folder / LAST_CHECKPOINT, training_checkpoints(folder)
    if not found or is_intact(last):
        return
    problem = "is damaged" if last in found else "is missing"
    num_updates: dict[Path, int] = {}
    for path in found:
        with suppress(OSError, UserError):  # it is damaged
            history = load_checkpoint_safely(path, mmap=True).get("optimizer_history") or [{}]
            num_updates[path] = history[-1].get("num_updates", 0)
    if not num_updates:
        raise UserError(
            f"{last} {problem}, and no other checkpoint in its folder is intact; restore one from a copy, or move the "
            "folder away to train from the beginning"
        )
    # Not by modification time, which copies lose, and which is wrong if the clock was set back.
    newest = max(num_updates, key=num_updates.__getitem__)
    copy_checkpoint_durably(newest, last)
    print_status(f"{last} {problem}; resuming from the newest intact checkpoint, {newest.name}")
