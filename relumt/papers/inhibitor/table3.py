"""[IN] Table 3: attention on encrypted integers, the Inhibitor against dot products, under TFHE through Concrete.

`circuits.py` has both circuits. Shapes: q, k, v and output [n, 2].

Compiles both circuits with Concrete, runs them in alternation on one thread, compares every decrypted output with that
of the circuit on plain integers, and writes a file per length n to --out. Finished
lengths are not measured again. The exit status is 1 if a measurement failed, and 2 if Concrete is missing.

Concrete requires NumPy 1 and imports torch and pkg_resources, so it needs a Python environment of its own:

    python3 -m venv concrete_env
    concrete_env/bin/pip install torch==2.13.0 concrete-python==2.11.0 "setuptools<81"
    export RELUMT_CONCRETE_PYTHON=concrete_env/bin/python
"""

import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
import numpy as np

from relumt.errors import AttemptFailedError, UserError, print_status
from relumt.files import decode_json
from relumt.papers.context import TableContext
from relumt.papers.inhibitor import circuits
from relumt.papers.inhibitor.results import make_parser, read_result, write_result
from relumt.papers.rendering import RenderedTable
from relumt.printed_results import printed_values, title
from relumt.process import command_line, positive_integer
from relumt.runs.environment import cpu_name, describe_revision

PYTHON_VARIABLE = "RELUMT_CONCRETE_PYTHON"
"""Environment variable with the interpreter that has Concrete."""
ADVICE = f"set {PYTHON_VARIABLE} to a Python with Concrete (python -m relumt.papers.inhibitor.table3 --help)"

PRESETS = {"paper": {2: 7, 4: 7, 8: 5, 16: 3}, "small": {2: 7, 4: 7, 8: 5}, "smoke": {2: 1}}
"""Preset -> length -> repetitions after the warm-up."""
LENGTHS = (2, 4, 8, 16)
"""Numbers of tokens in the paper's table."""


@dataclass(frozen=True)
class Origin:
    """What times depend on: n, runs after the warm-up, and the name of the CPU."""

    length: int
    repetitions: int
    cpu: str


@dataclass(frozen=True)
class EncryptedTimes:
    """The file that the measurement of one length writes; both circuits ran in alternation, on the same inputs."""

    origin: Origin
    versions: dict[str, str]
    revision: str
    dot_product: circuits.MeasuredCircuit
    inhibitor: circuits.MeasuredCircuit

    @property
    def by_row(self) -> dict[str, circuits.MeasuredCircuit]:
        """Row of the paper's table -> our circuit."""
        return {"dot product": self.dot_product, "inhibitor": self.inhibitor}


def result_file(folder: Path, length: int) -> Path:
    """Return the path of the results for one length."""
    return folder / f"n{length}.json"


def main(argv: Sequence[str] | None = None) -> None:
    """Measure the lengths that are missing."""
    parser = make_parser("table3", __doc__, PRESETS)
    parser.add_argument(
        "--lengths", type=int, nargs="+", choices=LENGTHS, metavar="N", help="2, 4, 8, 16 (default: the preset's)"
    )
    parser.add_argument("--repetitions", type=positive_integer, help="per length (default: those of the preset)")
    with command_line():
        arguments = parser.parse_args(argv)
        planned = PRESETS["paper"] | PRESETS[arguments.preset]
        for length in sorted(arguments.lengths or PRESETS[arguments.preset]):
            path = result_file(arguments.out, length)
            if read_result(path, EncryptedTimes):
                print_status(f"{path}: already measured")
            else:
                repetitions = arguments.repetitions or planned[length]
                python = os.environ.get(PYTHON_VARIABLE) or sys.executable
                write_result(path, measure(python, Origin(length, repetitions, cpu_name())))


def measure(python: str, origin: Origin) -> EncryptedTimes:
    """Return the times of both circuits for `origin.length`; `python` is an interpreter with Concrete.

    Raises:
        UserError: the environment lacks Concrete.
        AttemptFailedError: the measurement failed, or a decrypted output is wrong.
    """
    with tempfile.TemporaryDirectory() as scratch:
        # PYTHONPATH and the like belong to this environment. Concrete leaves compiled circuits in TMPDIR.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        environment |= {"OMP_NUM_THREADS": "1", "TMPDIR": scratch}
        command = [python, circuits.__file__, str(origin.length), str(origin.repetitions)]
        done = subprocess.run(command, stdout=subprocess.PIPE, env=environment, check=False)
    if done.returncode:
        error = UserError if done.returncode == UserError.exit_status else AttemptFailedError
        raise error(f"{python} {circuits.__file__} ended with status {done.returncode}; {ADVICE}")
    content = decode_json(done.stdout, dict[str, Any], python, ADVICE)
    for name, inputs, output in content["runs"]:
        q, k, v = map(np.array, inputs)
        expected = circuits.CIRCUITS[name](q, k, v, circuits.PLAIN).tolist()
        if output != expected:
            raise AttemptFailedError(
                f"{name}: expected {expected} for the inputs {inputs}, decrypted {output}; report this as an issue"
            )
    return msgspec.convert(content | {"origin": origin, "revision": describe_revision()}, EncryptedTimes)


def render(context: TableContext, folder: Path) -> list[RenderedTable]:
    """Return the paper's times and ratios beside ours, and what the circuits consist of."""
    found = {length: read_result(result_file(folder, length), EncryptedTimes) for length in LENGTHS}
    times = {length: measured for length, measured in found.items() if measured}
    if not times:
        raise UserError(f"no results in {folder}; measure times with {context.command}")
    return [beside_paper(times, context), describe_circuits(times, context)]


def beside_paper(times: Mapping[int, EncryptedTimes], context: TableContext) -> RenderedTable:
    """Return seconds and ratios, one row per length."""
    columns = ("dot product, s", "Inhibitor, s", "ratio")
    header = ["n", *(f"{source} {column}" for source in ("[IN]", "ours") for column in columns)]
    products, inhibitors = (printed_values("IN", "table3", row) for row in ("dot product", "inhibitor"))
    rows = []
    for length in LENGTHS:
        product, inhibitor = products[str(length)] or math.nan, inhibitors[str(length)] or math.nan
        printed = [f"{product:g}", f"{inhibitor:g}", f"{product / inhibitor:.1f}"]
        rows.append([str(length), *printed, *(describe_times(times[length]) if length in times else [""] * 4)])
    repetitions = ", ".join(f"{one.origin.repetitions} (n = {length})" for length, one in times.items())
    machines = sorted({one.origin.cpu for one in times.values()})
    versions = sorted({"; ".join(map(" ".join, one.versions.items())) for one in times.values()})
    revisions = sorted({one.revision for one in times.values()})
    notes = [
        "ratio: time of the dot product divided by the Inhibitor's; ours: median of the pairs (lowest–highest)",
        f"ours: CPU time of one thread, medians of runs in alternation after a warm-up: {repetitions}",
        f"{', '.join(machines)}; {' | '.join(versions)}; {', '.join(revisions)}",
    ]
    return RenderedTable(context.caption(title("IN", "table3")), [*header, "ratio of estimated costs"], rows, notes)


def describe_circuits(times: Mapping[int, EncryptedTimes], context: TableContext) -> RenderedTable:
    """Return what was compiled, one row per circuit."""
    header = ["n, circuit", "bootstraps", "bits", "keys, MB", "compilation, s", "key generation, s"]
    rows = [
        [
            f"{length}, {attention}",
            f"{circuit.bootstraps:,}",
            str(circuit.max_bits),
            f"{circuit.key_bytes / 1e6:.0f}",
            f"{circuit.compile_cpu_seconds:.1f}",
            f"{circuit.keygen_cpu_seconds:.1f}",
        ]
        for length, measured in times.items()
        for attention, circuit in measured.by_row.items()
    ]
    largest = max(circuit.error_probability for one in times.values() for circuit in one.by_row.values())
    notes = [
        "bootstraps: 4n² of the Inhibitor, 10n² + n of the dot product; bits: of the widest integer; CPU time",
        f"probability that a run is wrong: at most {largest:.0e}; every decrypted output was compared with exact "
        "integers, and all were equal",
    ]
    return RenderedTable(context.caption("circuits of encrypted attention"), header, rows, notes)


def describe_times(measured: EncryptedTimes) -> list[str]:
    """Return the cells of a length: both median times, their ratio, and the ratio of Concrete's estimates."""
    product, inhibitor = measured.dot_product, measured.inhibitor
    ratios = [a / b for a, b in zip(product.cpu_seconds, inhibitor.cpu_seconds, strict=True)]
    spread = f" ({min(ratios):.1f}–{max(ratios):.1f})" if len(ratios) > 1 else ""
    return [
        *(f"{median(circuit.cpu_seconds):.3g}" for circuit in (product, inhibitor)),
        f"{median(ratios):.1f}{spread}",
        f"{product.complexity / inhibitor.complexity:.1f}",
    ]


if __name__ == "__main__":
    main()
