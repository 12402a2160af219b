"""The checkpoints in a run's folder."""

import re
from contextlib import suppress
from pathlib import Path

from relumt.errors import UserError
from relumt.files import encode_json, file_sha256, read_json, write_text_atomically
from relumt.plugin.checkpoints.folder import (
    BEST_CHECKPOINT,
    LAST_CHECKPOINT,
    is_intact,
    last_checkpoints,
    numbered_checkpoints,
    training_checkpoints,
)
from relumt.runs.flags import Flags

AVERAGE = re.compile(r"checkpoint_average_(\d+)\.pt")
"""Name of an average, and how many checkpoints are averaged."""

WHOLE_NUMBER = re.compile("-?[0-9]{1,18}")

CHECKPOINTS = "checkpoints"
"""Name of the folder of checkpoints in a run's folder."""

PREFERRED_CHECKPOINTS = (BEST_CHECKPOINT, LAST_CHECKPOINT)
"""Checkpoints of a training, in order of preference; without validation there is no best."""


def has_checkpoints(run: Path) -> bool:
    """Return whether a run's folder contains a checkpoint from which training can resume."""
    return bool(training_checkpoints(run / CHECKPOINTS))


def best_checkpoint(run: Path) -> Path:
    """Return the checkpoint with the best validation loss, or the last one if training had no validation.

    Raises:
        UserError: there is neither.
    """
    for name in PREFERRED_CHECKPOINTS:
        if (run / CHECKPOINTS / name).is_file():
            return run / CHECKPOINTS / name
    raise UserError(f"{run / CHECKPOINTS}: no checkpoint; delete {run} and train again")


def num_averaged(checkpoint: str) -> int:
    """Return how many checkpoints the file named `checkpoint` is the average of; 0 if it is no average."""
    match = AVERAGE.fullmatch(checkpoint)
    return int(match[1]) if match else 0


def averaged_checkpoint(run: Path, count: int) -> Path:
    """Return the average of the last `count` checkpoints, writing it if it is missing, damaged or of other checkpoints.

    The file beside it, checkpoint_average_COUNT.json, has the SHA-256 of those that were averaged. Afterwards the
    numbered checkpoints may be deleted to save space.

    Raises:
        UserError: there are fewer checkpoints, or they cannot be averaged.
    """
    folder = run / CHECKPOINTS
    averaged, numbered = folder / f"checkpoint_average_{count}.pt", numbered_checkpoints(folder)
    record = averaged.with_suffix(".json")
    if len(numbered) < count and averaged.is_file() and is_intact(averaged):
        recorded = _read_checksums(record)
        if all(recorded.get(path.name) == file_sha256(path) for path in numbered):
            return averaged
    last = last_checkpoints(folder, count)
    checksums = {path.name: file_sha256(path) for path in last}
    if not (averaged.is_file() and _read_checksums(record) == checksums and is_intact(averaged)):
        from relumt.plugin.checkpoints.averaging import write_average  # imports PyTorch, which takes seconds

        record.unlink(missing_ok=True)
        write_average(last, averaged)
        write_text_atomically(record, encode_json(checksums))
    return averaged


def _read_checksums(record: Path) -> dict[str, str]:
    """Return what the file beside an average says; {} if it is missing or damaged."""
    with suppress(FileNotFoundError, UserError):
        return read_json(record, dict[str, str], "evaluate again")
    return {}


def keep_numbered_checkpoints(train: Flags, count: int) -> Flags:
    """Return the flags of fairseq-train so that training leaves the last `count` checkpoints to average.

    Flags that save checkpoints by updates stay as they are; otherwise those of the last epochs are kept.
    """
    if not count or "--save-interval-updates" in train:
        return train
    kept = {name: values for name, values in train.items() if name != "--no-epoch-checkpoints"}
    return {"--keep-last-epochs": [str(count)]} | kept


def require_numbered_checkpoints(train: Flags, count: int) -> None:
    """Raise UserError if training with these flags does not keep `count` checkpoints to average, however long it is."""
    by_updates = _number(train, "--save-interval-updates", 0) > 0
    keep = "--keep-interval-updates" if by_updates else "--keep-last-epochs"
    kept = _number(train, keep, -1)  # -1: all
    if not by_updates and "--no-epoch-checkpoints" in train:
        problem = "--no-epoch-checkpoints saves none; drop it, or give --save-interval-updates"
    elif 0 <= kept < count:
        problem = f"{keep} keeps {kept}; give {keep} {count}"
    else:
        return
    if count:
        raise UserError(f"the dataset's average_checkpoints = {count} needs {count} numbered checkpoints: {problem}")


def _number(flags: Flags, name: str, default: int) -> int:
    """Return the value of a flag, or `default` if it is missing or no whole number, which fairseq's parser refuses."""
    values = flags.get(name, [])
    return int(values[0]) if len(values) == 1 and WHOLE_NUMBER.fullmatch(values[0]) else default
