"""The checkpoints that fairseq-train saves in a folder, without PyTorch."""

import re
from itertools import islice
from pathlib import Path

from relumt.checkpoints.integrity import is_intact

LAST_CHECKPOINT = "checkpoint_last.pt"
"""Name of the checkpoint from which fairseq-train resumes."""

BEST_CHECKPOINT = "checkpoint_best.pt"
"""Name of the checkpoint with the best validation loss."""

CRASH_CHECKPOINT = "crash.pt"
"""Name of what fairseq saves when a training step fails, without the position in the data."""

TRAINING_CHECKPOINT = re.compile(r"checkpoint(\d+|_\d+_\d+|_best|_last|\.best_.+)\.pt")
"""File names of fairseq-train's checkpoints. Averages and crash.pt do not count."""

NUM_NAMED = 3
"""How many intact checkpoints an error message names."""


def training_checkpoints(folder: Path) -> list[Path]:
    """Return the checkpoints in a folder from which training can resume, newest first by modification time."""
    found = [path for path in folder.glob("checkpoint*.pt") if TRAINING_CHECKPOINT.fullmatch(path.name)]
    return sorted((path for path in found if path.is_file()), key=lambda path: (-path.stat().st_mtime, path.name))


def describe_intact_checkpoints(damaged: Path) -> str:
    """Say which other checkpoints in the folder of a damaged one are intact."""
    others = (path for path in training_checkpoints(damaged.parent) if path.name != damaged.name)
    intact = list(islice((path.name for path in others if is_intact(path)), NUM_NAMED))
    if not intact:
        return "no other checkpoint in its folder is intact; restore it from a copy, or train again"
    return f"intact in its folder: {', '.join(intact)}"
