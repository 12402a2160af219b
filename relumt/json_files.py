"""Reads JSON files whose format is a type: validated completely, or refused in one line."""

from pathlib import Path
from typing import TypeVar

import msgspec

from relumt.errors import UserError

Format = TypeVar("Format")


def read_json(path: Path, file_format: type[Format], advice: str) -> Format:
    """Read a JSON file and validate it; `advice` ends the error message ("prepare the data-bin again").

    Raises:
        FileNotFoundError: there is no such file.
        UserError: the file is not JSON, or not of the format.
    """
    return decode_json(path.read_bytes(), file_format, str(path), advice)


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
