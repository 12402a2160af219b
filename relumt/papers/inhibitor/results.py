"""What the three experiments share: their command line, and their result files."""

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

from relumt.files import encode_json, read_json, write_text_atomically
from relumt.process import ArgumentParser

Format = TypeVar("Format")


def make_parser(module: str, description: str, presets: Iterable[str]) -> ArgumentParser:
    """Return a parser with the options that `relumt reproduce` passes on, --preset and --out."""
    parser = ArgumentParser(
        prog=f"python -m relumt.papers.inhibitor.{module}", description=description, allow_abbrev=False
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--preset", default="small", choices=list(presets), help="what to measure (default: small)")
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    return parser


def read_result(path: Path, file_format: type[Format]) -> Format | None:
    """Read a result; None if there is none. Raises UserError if the file is damaged."""
    try:
        return read_json(path, file_format, "delete it to measure again")
    except FileNotFoundError:
        return None


def write_result(path: Path, content: object) -> None:
    """Write a result, completely or not at all."""
    write_text_atomically(path, encode_json(content))
