"""Saves checkpoints so that a crash, a full disk or a power failure never damages the previous ones.

A checkpoint is written beside its destination, sealed (`relumt.checkpoints.integrity`) and flushed to the disk before
it replaces anything.
"""

import shutil
from pathlib import Path
from typing import IO, Any, cast

import torch

from relumt.atomic_output import atomic_file, remove_unfinished_files
from relumt.checkpoints.integrity import SealingWriter


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
            if writer.error is not None:
                raise writer.error from None
            raise
        writer.seal()


def copy_checkpoint_durably(source: Path, destination: Path) -> None:
    """Copy a checkpoint; if that fails, `destination` is unchanged and no other file remains.

    The copy is no link, so that damage to one file leaves the other intact.

    Raises:
        OSError: the file cannot be written.
    """
    with atomic_file(destination) as unfinished:
        shutil.copyfile(source, unfinished)


def remove_unfinished_checkpoints(folder: Path) -> None:
    """Remove what processes left that were killed while they saved a checkpoint, with relumt or stock fairseq."""
    for prefix in ("checkpoint", "crash.pt"):
        remove_unfinished_files(folder, prefix)
    for path in folder.glob("c*.pt.tmp"):  # checkpoint*.pt.tmp and crash.pt.tmp
        path.unlink(missing_ok=True)
