"""The checkpoints that fairseq-train saves in a folder, and what finds damage in them, without PyTorch.

`torch.save` writes a zip archive with a CRC-32 of each record, which `torch.load` does not check. relumt also seals the
archives that it writes: the archive's comment holds the SHA-256 of the archive without the comment. PyTorch and stock
fairseq ignore the comment, so they read sealed checkpoints as well.
"""

import hashlib
import re
import zipfile
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from relumt.errors import UserError, quote

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

SEAL_PREFIX = b"sha256:"
SEAL_LENGTH = len(SEAL_PREFIX) + hashlib.sha256().digest_size * 2

END_RECORD_LENGTH = 22
"""Bytes of the record that ends a zip archive; its last two are the length of the comment that follows."""

LEGACY_FORMAT = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
"""How files begin that `torch.save` wrote before PyTorch 1.6, which have no checksums."""

FOLDER_ATTRIBUTE = 0x10
"""PyTorch takes a record with this attribute, which no checksum covers, for an empty one."""


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
    """Say which other checkpoints in the folder of a damaged one are intact, three at most."""
    others = (path for path in training_checkpoints(damaged.parent) if path.name != damaged.name)
    intact = list(islice((path.name for path in others if is_intact(path)), 3))
    if not intact:
        return "no other checkpoint in its folder is intact; restore it from a copy, or train again"
    return f"intact in its folder: {', '.join(intact)}"


def is_intact(path: Path) -> bool:
    """Return whether a file is a readable, undamaged archive."""
    try:
        return not find_damage(path)
    except OSError:
        return False


def find_damage(path: Path) -> str:
    """Describe what is wrong with a checkpoint's archive in a few words; "" if it is intact.

    The checksum of the whole archive is checked, or those of its records if it is not sealed.

    Raises:
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        if file.read(len(LEGACY_FORMAT)) == LEGACY_FORMAT:
            return "in the format of PyTorch before 1.6, without checksums; convert it with torch.load and torch.save"
        if _ends_with_comment(file, SEAL_LENGTH):
            return _check_seal(file)
        if _ends_with_comment(file, 0):
            return _check_records(file)
    return "truncated, damaged or of another format"


def _ends_with_comment(file: BinaryIO, length: int) -> bool:
    """Return whether the archive's last record is followed by a comment of this length and nothing else."""
    file.seek(max(0, file.seek(0, 2) - END_RECORD_LENGTH - length))
    record = file.read(END_RECORD_LENGTH)
    return record.startswith(b"PK\x05\x06") and int.from_bytes(record[-2:], "little") == length


def _check_seal(file: BinaryIO) -> str:
    left = file.seek(-SEAL_LENGTH, 2) - 2
    seal, computed = file.read(), hashlib.sha256()
    file.seek(0)
    while chunk := file.read(min(1 << 20, left)):
        computed.update(chunk)
        left -= len(chunk)
    computed.update(bytes(2))  # the archive without a comment has a comment of length 0
    return "" if seal == SEAL_PREFIX + computed.hexdigest().encode() else "damaged (its checksum differs)"


def _check_records(file: BinaryIO) -> str:
    try:
        with zipfile.ZipFile(file) as archive:
            if any(record.external_attr & FOLDER_ATTRIBUTE for record in archive.infolist()):
                return "damaged (a record has the attribute of a folder)"
            damaged = archive.testzip()
    except Exception as error:  # zipfile raises a dozen types of exceptions on damaged directories
        return f"damaged ({str(error)[:80]})"
    return f"damaged (the checksum of its record {quote(damaged)} differs)" if damaged else ""
