"""Checksums of checkpoint files, and what finds damage in them.

`torch.save` writes a zip archive with a CRC-32 of each record, which `torch.load` does not check. relumt also seals the
archives that it writes: the archive's comment holds the SHA-256 of the archive without the comment. PyTorch and stock
fairseq ignore the comment, so they read sealed checkpoints as well.
"""

import hashlib
import zipfile
from pathlib import Path
from typing import BinaryIO

from relumt.errors import UserError, quote

SEAL_PREFIX = b"sha256:"
SEAL_LENGTH = len(SEAL_PREFIX) + hashlib.sha256().digest_size * 2

END_RECORD_SIGNATURE = b"PK\x05\x06"
END_RECORD_LENGTH = 22
"""Bytes of the record that ends a zip archive; its last two are the length of the comment that follows."""

COMMENT_LENGTH_BYTES = 2
FOLDER_ATTRIBUTE = 0x10
"""PyTorch takes a record with this attribute for an empty one."""

LEGACY_FORMAT = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
"""How files begin that `torch.save` wrote before PyTorch 1.6, which have no checksums."""

CHUNK = 1 << 20


class UnreadableCheckpointError(UserError):
    """The file is truncated, damaged or of another format."""


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
        """Append the comment with the checksum to the complete archive."""
        seal = SEAL_PREFIX + self._hash.hexdigest().encode()
        self._file.seek(-COMMENT_LENGTH_BYTES, 2)
        self._file.write(len(seal).to_bytes(COMMENT_LENGTH_BYTES, "little") + seal)


def verify_integrity(path: Path) -> None:
    """Check the checksum of a checkpoint, or those of its records if it is not sealed.

    Raises:
        OSError: the file cannot be read.
        UnreadableCheckpointError: the file is truncated, damaged or of another format.
    """
    with path.open("rb") as file:
        damage = find_damage(file)
    if damage:
        raise UnreadableCheckpointError(f"{path}: not a readable checkpoint, it is {damage}")


def is_intact(path: Path) -> bool:
    """Return whether a file is a readable, undamaged archive."""
    try:
        verify_integrity(path)
    except (OSError, UnreadableCheckpointError):
        return False
    return True


def find_damage(file: BinaryIO) -> str:
    """Describe what is wrong with an archive in a few words; "" if it is intact."""
    beginning = file.read(len(LEGACY_FORMAT))
    if beginning == LEGACY_FORMAT:
        return "in the format of PyTorch before 1.6, without checksums; convert it with torch.load and torch.save"
    if not beginning.startswith(b"PK\x03\x04"):
        return "damaged or of another format (it does not begin like a checkpoint)"
    size = file.seek(0, 2)
    if _ends_with_comment(file, size, SEAL_LENGTH):
        return "" if _has_valid_seal(file, size) else "damaged (its checksum differs)"
    if _ends_with_comment(file, size, 0):
        return _find_damaged_record(file, size)
    return "truncated or damaged (it does not end like a checkpoint)"


def _ends_with_comment(file: BinaryIO, size: int, length: int) -> bool:
    """Whether the archive's last record is followed by a comment of this length and nothing else."""
    begin = size - END_RECORD_LENGTH - length
    if begin < 0:
        return False
    file.seek(begin)
    record = file.read(END_RECORD_LENGTH)
    announced = int.from_bytes(record[-COMMENT_LENGTH_BYTES:], "little")
    return record.startswith(END_RECORD_SIGNATURE) and announced == length


def _has_valid_seal(file: BinaryIO, size: int) -> bool:
    file.seek(size - SEAL_LENGTH)
    seal = file.read(SEAL_LENGTH)
    computed = hashlib.sha256()
    file.seek(0)
    left = size - SEAL_LENGTH - COMMENT_LENGTH_BYTES
    while left and (chunk := file.read(min(CHUNK, left))):
        computed.update(chunk)
        left -= len(chunk)
    computed.update(bytes(COMMENT_LENGTH_BYTES))  # the archive without a comment has a comment of length 0
    return seal == SEAL_PREFIX + computed.hexdigest().encode()


def _find_damaged_record(file: BinaryIO, size: int) -> str:
    """Check the CRC-32 of each record, and that the directory describes the file."""
    try:
        with zipfile.ZipFile(file) as archive:
            records = archive.infolist()
            # torch.save does not compress. Without this check, a small file could expand to terabytes.
            if any(record.compress_type != zipfile.ZIP_STORED for record in records):
                return "damaged (a record is compressed)"
            if any(record.external_attr & FOLDER_ATTRIBUTE for record in records):
                return "damaged (a record has the attribute of a folder)"
            if len({record.filename for record in records}) < len(records):
                return "damaged (two records have one name)"
            if sum(record.file_size for record in records) > size:
                return "damaged (its records overlap)"
            damaged = archive.testzip()
    except Exception as error:  # zipfile raises a dozen types of exceptions on damaged directories
        return f"damaged ({str(error)[:80]})"
    return f"damaged (the checksum of its record {quote(damaged)} differs)" if damaged else ""
