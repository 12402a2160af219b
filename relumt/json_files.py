"""JSON files whose format is a type: readable when written, and validated completely or refused in one line."""

from pathlib import Path
from stat import S_ISREG
from typing import TypeVar

import msgspec

from relumt.errors import UserError

Format = TypeVar("Format")


def encode_json(content: object) -> str:
    """Return dataclasses or other content as the text of a JSON file, indented and with a line break at the end."""
    return msgspec.json.format(msgspec.json.encode(content), indent=2).decode() + "\n"


def read_json(path: Path, file_format: type[Format], advice: str) -> Format:
    """Read a JSON file and validate it; `advice` ends the error message ("prepare the data-bin again").

    Raises:
        FileNotFoundError: there is no such file.
        UserError: it cannot be read, is not a regular file, not JSON, or not of the format.
    """
    return decode_json(_read_regular_file(path, advice), file_format, str(path), advice)


class _Header(msgspec.Struct):
    schema: int | None = None


def read_schema(path: Path, advice: str) -> int | None:
    """Return the schema that a JSON file names, None if it names none; raises as `read_json` does."""
    return read_json(path, _Header, advice).schema


def read_versioned(path: Path, file_format: type[Format], schema: int, advice: str) -> Format:
    """Do what `read_json` does; raise UserError if the file has another schema."""
    found = read_schema(path, advice)
    if found != schema:
        raise UserError(f"{path}: expected schema {schema}, found {found}; {advice}")
    return read_json(path, file_format, advice)


def _read_regular_file(path: Path, advice: str) -> bytes:
    """Return what a file contains; one that is no regular file could block or never end."""
    try:
        if not S_ISREG(path.stat().st_mode):
            raise UserError(f"{path}: expected a regular file, found a folder, pipe or device; {advice}")
        return path.read_bytes()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); {advice}") from None


def decode_json(text: str | bytes, file_format: type[Format], name: str, advice: str) -> Format:
    """Decode JSON and validate it; `name` begins the error message, as `advice` ends it.

    Raises:
        UserError: the text is not JSON, or not of the format.
    """
    try:
        return msgspec.json.decode(text, type=file_format)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:  # ValueError: invalid UTF-8 or a number too long
        reason = str(error).partition("\n")[0][:120]
        raise UserError(f"{name}: not in the expected format ({reason}); {advice}") from None
