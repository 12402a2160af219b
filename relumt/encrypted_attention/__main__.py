"""Time attention on encrypted integers, for [IN] Table 3.

Compiles the Inhibitor and dot-product attention with Concrete, runs both in alternation on one thread, compares every
decrypted output with exact integers, and writes a file per length to --out. What was measured with the same code and
CPU is not measured again. The exit status is 1 if a measurement failed, and 2 if Concrete or something else is missing.

Concrete needs a Python environment of its own:
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from relumt.arguments import ArgumentParser, positive_integer, valid_path
from relumt.atomic_output import atomic_file
from relumt.console import print_status
from relumt.doctor.hardware import cpu_name
from relumt.encrypted_attention import concrete_worker
from relumt.encrypted_attention.measurement import measure
from relumt.encrypted_attention.worker_process import INSTALL, PYTHON_VARIABLE
from relumt.files import file_sha256, require_writable
from relumt.json_files import encode_json, read_json
from relumt.process import command_line
from relumt.tables.inhibitor_table3 import LENGTHS, EncryptedTimes, Origin, result_file

PRESETS = {
    "paper": {2: 7, 4: 7, 8: 5, 16: 3},
    "small": {2: 7, 4: 7, 8: 5},
    "smoke": {2: 1},
}
"""Preset -> length -> repetitions after the warm-up."""


def make_parser() -> ArgumentParser:
    """Return the parser of the command line."""
    parser = ArgumentParser(
        prog="python -m relumt.encrypted_attention", description=f"{__doc__}\n    {INSTALL}", allow_abbrev=False
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--preset", default="small", choices=list(PRESETS), help="what to measure (default: small)")
    parser.add_argument("--out", type=valid_path, required=True, help="folder of the results")
    parser.add_argument(
        "--python",
        default=os.environ.get(PYTHON_VARIABLE) or sys.executable,
        help=f"interpreter of the environment with Concrete (default: ${PYTHON_VARIABLE}, else this one)",
    )
    parser.add_argument(
        "--lengths", type=int, nargs="+", choices=LENGTHS, metavar="N", help="2, 4, 8, 16 (default: the preset's)"
    )
    parser.add_argument("--repetitions", type=positive_integer, help="per length (default: those of the preset)")
    parser.add_argument(
        "--time-limit",
        type=positive_integer,
        default=14_400,
        metavar="SECONDS",
        help="for compiling a circuit and its keys, and for one run of it (default: 14400)",
    )
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    """Parse the command line and measure; errors of the user are one line."""
    with command_line():
        arguments = make_parser().parse_args(argv)
        require_writable(arguments.out)
        planned = plan(arguments.preset, arguments.lengths, arguments.repetitions)
        origins = {
            length: Origin(length, repetitions, cpu_name(), file_sha256(Path(concrete_worker.__file__)))
            for length, repetitions in planned.items()
        }
        missing = [length for length in planned if not is_measured(arguments.out, origins[length])]
        for length in missing:
            times = measure(arguments.python, origins[length], arguments.time_limit)
            with atomic_file(result_file(arguments.out, length)) as unfinished:
                unfinished.write_text(encode_json(times), encoding="utf-8")


def plan(preset: str, lengths: list[int] | None, repetitions: int | None) -> dict[int, int]:
    """Return the repetitions by length, in ascending order."""
    chosen = sorted(lengths or PRESETS[preset])
    return {length: repetitions or PRESETS[preset].get(length) or PRESETS["paper"][length] for length in chosen}


def is_measured(folder: Path, origin: Origin) -> bool:
    """Return, and say, whether a length was measured in the same way; raise UserError if its file is damaged."""
    path = result_file(folder, origin.length)
    try:
        found = read_json(path, EncryptedTimes, "delete it and try again")
    except FileNotFoundError:
        return False
    if found.origin == origin:
        print_status(f"{path}: already measured")
    return found.origin == origin


if __name__ == "__main__":
    main()
