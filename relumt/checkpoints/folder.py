"""The checkpoints that fairseq-train saves in a folder, without PyTorch."""

import re
from itertools import islice
from pathlib import Path

from relumt.checkpoints.integrity import is_intact
from relumt.errors import UserError

LAST_CHECKPOINT = "checkpoint_last.pt"
"""Name of the checkpoint from which fairseq-train resumes."""

BEST_CHECKPOINT = "checkpoint_best.pt"
"""Name of the checkpoint with the best validation loss."""

CRASH_CHECKPOINT = "crash.pt"
"""Name of what fairseq saves when a training step fails, without the position in the data."""

TRAINING_CHECKPOINT = re.compile(r"checkpoint(\d+|_\d+_\d+|_best|_last|\.best_.+)\.pt")
"""File names of fairseq-train's checkpoints. Averages and crash.pt do not count."""

NUMBERED_CHECKPOINT = re.compile(r"checkpoint_?(\d+)(?:_(\d+))?\.pt")
"""File names checkpoint_EPOCH_UPDATES.pt (of --save-interval-updates) and checkpointEPOCH.pt."""

NUM_NAMED = 3
"""How many intact checkpoints an error message names."""


def training_checkpoints(folder: Path) -> list[Path]:
    """Return the checkpoints in a folder from which training can resume, newest first by modification time."""
    found = [path for path in folder.glob("checkpoint*.pt") if TRAINING_CHECKPOINT.fullmatch(path.name)]
    return sorted((path for path in found if path.is_file()), key=lambda path: (-path.stat().st_mtime, path.name))


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


def describe_intact_checkpoints(damaged: Path) -> str:
    """Say which other checkpoints in the folder of a damaged one are intact."""
    others = (path for path in training_checkpoints(damaged.parent) if path.name != damaged.name)
    intact = list(islice((path.name for path in others if is_intact(path)), NUM_NAMED))
    if not intact:
        return "no other checkpoint in its folder is intact; restore it from a copy, or train again"
    return f"intact in its folder: {', '.join(intact)}"
