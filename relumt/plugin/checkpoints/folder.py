"""The checkpoints that fairseq-train saves in a folder, and what finds damage in them, without PyTorch."""

import re
import zipfile
from pathlib import Path

from relumt.errors import UserError, describe_error, quote

LAST_CHECKPOINT = "checkpoint_last.pt"
"""Name of the checkpoint from which fairseq-train resumes."""

BEST_CHECKPOINT = "checkpoint_best.pt"
"""Name of the checkpoint with the best validation loss."""

TRAINING_CHECKPOINT = re.compile(r"checkpoint(\d+|_\d+_\d+|_best|_last|\.best_.+)\.pt")
"""File names of fairseq-train's checkpoints. Averages and crash.pt, of a failed training step, do not count."""

NUMBERED_CHECKPOINT = re.compile(r"checkpoint_?(\d+)(?:_(\d+))?\.pt")
"""File names checkpoint_EPOCH_UPDATES.pt (of --save-interval-updates) and checkpointEPOCH.pt."""

FOLDER_ATTRIBUTE = 0x10
"""PyTorch takes a record with this attribute, which no checksum covers, for an empty one."""


def training_checkpoints(folder: Path) -> list[Path]:
    """Return the checkpoints in a folder from which training can resume, by name."""
    found = (path for path in folder.glob("checkpoint*.pt") if TRAINING_CHECKPOINT.fullmatch(path.name))
    return sorted(filter(Path.is_file, found))


def last_checkpoints(folder: Path, count: int) -> list[Path]:
    """Return the last `count` checkpoints of a training run by updates, or by epochs if none is named by updates.

    Raises:
        UserError: there are fewer.
    """
    numbers = numbered_checkpoints(folder)
    by_updates = [path for path, (_, updates) in numbers.items() if updates]
    last = sorted(by_updates or numbers, key=numbers.__getitem__)[-count:]
    if len(last) < count:
        raise UserError(
            f"{folder}: expected at least {count} numbered checkpoints to average, found {len(last)}; train longer, or "
            "keep more with --keep-interval-updates or --keep-last-epochs"
        )
    return last


def numbered_checkpoints(folder: Path) -> dict[Path, tuple[int, ...]]:
    """Return the epoch and the updates (0 at the end of an epoch) of the checkpoints that are named by them."""
    matches = {path: NUMBERED_CHECKPOINT.fullmatch(path.name) for path in folder.glob("checkpoint*.pt")}
    return {path: tuple(int(group or 0) for group in match.groups()) for path, match in matches.items() if match}


def is_intact(path: Path) -> bool:
    """Return whether a file is a readable, undamaged archive."""
    try:
        return not find_damage(path)
    except OSError:
        return False


def find_damage(path: Path) -> str:
    """Describe what is wrong with a checkpoint's archive in a few words; "" if it is intact.

    `torch.save` writes a zip archive with a checksum (CRC-32) of each record, which `torch.load` does not compare.

    Raises:
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        try:
            with zipfile.ZipFile(file) as archive:
                if any(record.external_attr & FOLDER_ATTRIBUTE for record in archive.infolist()):
                    return "damaged (a record has the attribute of a folder)"
                damaged = archive.testzip()
        except Exception as error:  # zipfile raises a dozen types of exceptions on damaged directories
            reason = describe_error(error)[:80]
            return f"truncated, damaged, or in a format other than that of PyTorch since 1.6 ({reason})"
    return f"damaged (the checksum of its record {quote(damaged)} differs)" if damaged else ""
