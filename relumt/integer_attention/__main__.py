"""Time integer attention for [IN] Table 2: python -m relumt.integer_attention --preset small --out FOLDER.

Builds the kernels for SSE2, AVX2 and AVX-512, runs those that this CPU supports, and writes FOLDER/times.json. What was
measured with the same code, compiler and CPU is not measured again. The exit status is 1 if a kernel could not be built
or is wrong, and 2 if nothing could be measured here.
"""

import argparse
import shlex
from collections.abc import Sequence
from pathlib import Path

from relumt.arguments import ArgumentParser, valid_path
from relumt.atomic_output import atomic_file
from relumt.console import print_status
from relumt.doctor.hardware import cpu_name
from relumt.errors import AttemptFailedError, UserError
from relumt.integer_attention.compiler import INSTRUCTION_SETS, Compiler, find_compiler, require_x86, source_digest
from relumt.integer_attention.kernels import Kernels
from relumt.integer_attention.measurement import Sizes, measure
from relumt.json_files import encode_json, read_json
from relumt.process import command_line
from relumt.runs.environment import describe_revision
from relumt.tables.inhibitor_table2 import RESULTS, IntegerTimes, Origin, Width

ALL_SIZES = Sizes(head_sizes=(32, 64, 128), lengths=(32, 64, 128, 256), rounds=101)
PRESETS = {"paper": ALL_SIZES, "small": ALL_SIZES, "smoke": Sizes(head_sizes=(32,), lengths=(32, 64), rounds=7)}
WIDTHS: tuple[Width, ...] = (16, 32)

Built = dict[tuple[str, Width], Kernels]
"""Instruction set and bits of the sums → kernels."""


def main(argv: Sequence[str] | None = None) -> None:
    """Parse the command line and measure; errors of the user are one line."""
    with command_line():
        parser = ArgumentParser(prog="python -m relumt.integer_attention", description=__doc__, allow_abbrev=False)
        parser.formatter_class = argparse.RawDescriptionHelpFormatter
        parser.add_argument("--preset", default="small", choices=list(PRESETS), help="what to measure (default: small)")
        parser.add_argument("--out", type=valid_path, required=True, help="folder of the results")
        arguments = parser.parse_args(argv)
        run(arguments.preset, arguments.out)


def run(preset: str, out: Path) -> None:
    """Measure unless it was done; raise SystemExit(1) if some kernels could not be built."""
    require_x86()
    compiler = find_compiler()
    built, failures = build(compiler)
    if not built:
        raise UserError(str(failures[0]))
    for failure in failures:
        print_status(f"left out: {failure}")
    origin = describe_origin(preset, compiler, built)
    if is_measured(out / RESULTS, origin):
        print_status(f"{out / RESULTS}: already measured")
    else:
        out.mkdir(parents=True, exist_ok=True)
        runnable = {key: kernels for key, kernels in built.items() if INSTRUCTION_SETS[key[0]].runs_here()}
        comparisons = measure(runnable, PRESETS[preset])
        times = IntegerTimes(origin, describe_revision(), comparisons)
        with atomic_file(out / RESULTS) as unfinished:
            unfinished.write_text(encode_json(times), encoding="utf-8")
    if failures:
        raise SystemExit(1)


def build(compiler: Compiler) -> tuple[Built, list[AttemptFailedError]]:
    """Build the kernels for every instruction set; return those that both widths were built for, and failures."""
    built: Built = {}
    failures = []
    for name, instruction_set in INSTRUCTION_SETS.items():
        try:
            built |= {(name, width): Kernels(compiler, instruction_set, width) for width in WIDTHS}
        except AttemptFailedError as failure:
            failures.append(failure)
    return built, failures


def describe_origin(preset: str, compiler: Compiler, built: Built) -> Origin:
    """Return what the times depend on."""
    names = dict.fromkeys(name for name, _ in built)
    flags = {name: shlex.join(compiler.flags(INSTRUCTION_SETS[name], 16)[:-1]) for name in names}
    not_run = [name for name in names if not INSTRUCTION_SETS[name].runs_here()]
    described = f"{shlex.join(compiler.command)} ({compiler.version})"
    return Origin(preset, cpu_name(), described, flags, not_run, source_digest(), PRESETS[preset].rounds)


def is_measured(path: Path, origin: Origin) -> bool:
    """Return whether the file has times of this origin; raise UserError if it is damaged."""
    try:
        found = read_json(path, IntegerTimes, "delete it and try again")
    except (FileNotFoundError, NotADirectoryError):
        return False
    return found.origin == origin


if __name__ == "__main__":
    main()
