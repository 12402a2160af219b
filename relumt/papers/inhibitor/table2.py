"""[IN] Table 2: attention of a single head in 16-bit integers, the Inhibitor against dot products, timed on a CPU.

`integer_attention.py` has the equations and computes both attentions with NumPy. `kernels.c` computes them in two ways:
as plain loops, which the compiler vectorizes, and with chosen instructions on tiles of registers. Shapes: q, k, v and
output [n, d].

Builds the kernels with $CC, or cc, for each of SSE2, AVX2 and AVX-512 that this CPU has. Compares each with NumPy, then
times the Inhibitor and dot products in alternation, in one process, and writes OUT/times.json unless it is there. The
exit status is 1 if a kernel is wrong, and 2 if the kernels cannot be built.
"""

import os
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import median

import numpy as np
import torch

from relumt.errors import AttemptFailedError, UserError, print_status
from relumt.papers.context import TableContext
from relumt.papers.inhibitor.integer_attention import (
    ATTENTIONS,
    CODES,
    MARCH,
    WIDTHS,
    Kernels,
    Run,
    flags,
    random_problem,
    run_compiler,
)
from relumt.papers.inhibitor.results import make_parser, read_result, write_result
from relumt.papers.rendering import RenderedTable
from relumt.papers.speeds import Ratio, format_ratio, median_ratio
from relumt.printed_results import papers, printed_values, title
from relumt.process import command_line
from relumt.runs.environment import cpu_name, describe_revision

RESULTS = "times.json"

WIDTH_PAIRS = ((16, 32), (16, 16), (32, 32))
"""Bits of the sums that are compared: the Inhibitor's and the dot product's."""
PAPER_WIDTHS, PAPER_HEAD_SIZE = (16, 32), 64
"""What is shown beside the paper's times: [IN] says dot products need twice the precision, and does not print its d."""

SAMPLE_SECONDS = 5e-4
"""A kernel is repeated until a sample takes about this long, far more than a call through ctypes."""


ALL_SIZES = (32, 64, 128), (32, 64, 128, 256), 101
PRESETS = {"paper": ALL_SIZES, "small": ALL_SIZES, "smoke": ((32,), (32, 64), 7)}
"""Preset -> each d that is measured with each n, in how many alternations."""

System = tuple[str, str, str, int]
"""Instruction set, code, attention and bits of its sums."""


@dataclass(frozen=True)
class Comparison:
    """The Inhibitor and dot products in alternation.

    Attributes:
        instruction_set: for example "AVX2".
        code: "tiled" with chosen instructions, "plain" with those of the compiler.
        inhibitor_width, dot_product_width: bits of the sums.
        d, n: components and length.
        inhibitor_us, dot_product_us: medians in microseconds.
        ratio: the Inhibitor's time divided by that of dot products.
    """

    instruction_set: str
    code: str
    inhibitor_width: int
    dot_product_width: int
    d: int
    n: int
    inhibitor_us: float
    dot_product_us: float
    ratio: Ratio


@dataclass(frozen=True)
class Origin:
    """What times depend on.

    Attributes:
        cpu: name of the CPU.
        compiler: the command and the first line of what it says about itself.
        flags: instruction set → the compiler's flags.
        not_run: instruction sets that this CPU lacks.
        rounds: number of alternations.
    """

    cpu: str
    compiler: str
    flags: dict[str, str]
    not_run: list[str]
    rounds: int


@dataclass(frozen=True)
class IntegerTimes:
    """The file of results."""

    origin: Origin
    revision: str
    comparisons: list[Comparison]


def main(argv: Sequence[str] | None = None) -> None:
    """Measure unless it was done."""
    with command_line():
        arguments = make_parser("table2", __doc__, PRESETS).parse_args(argv)
        path = arguments.out / RESULTS
        if read_result(path, IntegerTimes):
            print_status(f"{path}: already measured")
        else:
            write_result(path, measure(*PRESETS[arguments.preset]))


def available_sets() -> list[str]:
    """Return the instruction sets that this CPU has, as PyTorch detects them."""
    return list(MARCH)[: {"AVX2": 2, "AVX512": 3}.get(torch.backends.cpu.get_cpu_capability(), 1)]


def measure(head_sizes: Sequence[int], lengths: Sequence[int], rounds: int) -> IntegerTimes:
    """Build, verify and time the kernels; raise AttemptFailedError if one is wrong."""
    compiler = f"{os.environ.get('CC') or 'cc'} ({run_compiler('--version').partition(chr(10))[0]})"
    sets = available_sets()
    kernels = {(name, width): Kernels(name, width) for name, width in product(sets, WIDTHS)}
    comparisons: list[Comparison] = []
    for d, n in product(head_sizes, lengths):
        comparisons += compare(alternate(dict(verified_runs(kernels, n, d)), rounds), d, n)
    comparisons.sort(key=lambda one: sets.index(one.instruction_set))
    used_flags = {name: shlex.join(flags(name)) for name in sets}
    not_run = [name for name in MARCH if name not in sets]
    return IntegerTimes(Origin(cpu_name(), compiler, used_flags, not_run, rounds), describe_revision(), comparisons)


def verified_runs(kernels: Mapping[tuple[str, int], Kernels], n: int, d: int) -> Iterator[tuple[System, Run]]:
    """Yield each kernel, bound to the same random problem, after comparing its output with NumPy's."""
    problem = random_problem(n, d)
    for (name, width), attention in product(kernels, ATTENTIONS):
        expected = problem.expected(attention, width)
        for code in CODES:
            run, output = kernels[name, width].prepare(attention, code, problem)
            run(1)
            if not np.array_equal(output, expected):
                system = f"{code} {attention}, {name}, sums of {width} bits, n = {n}, d = {d}"
                raise AttemptFailedError(f"{system}: the kernel's output differs from NumPy's; try another compiler")
            yield (name, code, attention, width), run


def alternate(runs: Mapping[System, Run], rounds: int) -> dict[System, list[float]]:
    """Return the CPU seconds of one call, per round; the order alternates, and a round of warm-up is left out."""
    repeats = {system: max(1, round(SAMPLE_SECONDS / max(seconds(run, 3), 1e-9))) for system, run in runs.items()}
    times: dict[System, list[float]] = {system: [] for system in runs}
    for round_number in range(rounds + 1):
        for system in list(runs)[:: 1 if round_number % 2 else -1]:
            elapsed = seconds(runs[system], repeats[system])
            if round_number:
                times[system].append(elapsed)
    return times


def seconds(run: Run, repeats: int) -> float:
    """Return the CPU time of this thread per call; that of other processes does not count."""
    start = time.thread_time_ns()
    run(repeats)
    return (time.thread_time_ns() - start) / 1e9 / repeats


def compare(times: Mapping[System, list[float]], d: int, n: int) -> Iterator[Comparison]:
    """Yield the comparisons of all instruction sets, codes and pairs of widths."""
    names = dict.fromkeys(name for name, *_ in times)
    for name, code, (inhibitor_width, dot_product_width) in product(names, CODES, WIDTH_PAIRS):
        own = times[name, code, "inhibitor", inhibitor_width]
        products = times[name, code, "dot_product", dot_product_width]
        ratio = median_ratio([x / y for x, y in zip(own, products, strict=True)])
        own_us, products_us = (median(seconds) * 1e6 for seconds in (own, products))
        yield Comparison(name, code, inhibitor_width, dot_product_width, d, n, own_us, products_us, ratio)


def render(context: TableContext, folder: Path) -> list[RenderedTable]:
    """Return the paper's times beside ours, and our ratios; raise UserError if nothing was measured."""
    times = read_result(folder / RESULTS, IntegerTimes)
    if times is None:
        raise UserError(f"{folder / RESULTS}: no such file; measure times with {context.command}")
    return [beside_paper(times, context), sweep(times, context)]


def beside_paper(times: IntegerTimes, context: TableContext) -> RenderedTable:
    """Return the paper's times and ours of tiled code, one row per length."""
    d = max((one.d for one in times.comparisons), key=lambda d: (d == PAPER_HEAD_SIZE, d))
    shown = {
        (one.instruction_set, one.n): one
        for one in times.comparisons
        if (one.d, one.code, one.inhibitor_width, one.dot_product_width) == (d, "tiled", *PAPER_WIDTHS)
    }
    sets = list(dict.fromkeys(name for name, _ in shown))
    units = ("dot product, µs", "Inhibitor, µs", "ratio")
    products, inhibitor = (printed_values("IN", "table2", row) for row in ("dot product", "inhibitor"))
    rows = []
    for n in papers()["IN"]["table2"]["columns"]:
        row = [n, f"{products[n]:g}", f"{inhibitor[n]:g}", f"{(inhibitor[n] or 0) / (products[n] or 1):.2f}"]
        for one in (shown.get((name, int(n))) for name in sets):
            times_us = [f"{one.dot_product_us:.3g}", f"{one.inhibitor_us:.3g}"] if one else ["", ""]
            row += [*times_us, format_ratio(one.ratio if one else None)]
        rows.append(row)
    origin = times.origin
    notes = [
        f"d = {d}, tiled code, sums of {PAPER_WIDTHS[0]} bits in the Inhibitor and of {PAPER_WIDTHS[1]} bits in dot "
        "products",
        f"{origin.cpu}, one thread; medians of {origin.rounds} alternations, 95% intervals; {times.revision}",
        f"{origin.compiler}: {'; '.join(f'{name}: {flags}' for name, flags in origin.flags.items())}",
        "every kernel returned what NumPy's 64-bit integers give before it was timed",
        *([f"not run, because this CPU lacks it: {', '.join(origin.not_run)}"] if origin.not_run else []),
    ]
    header = ["n", *(f"{source} {unit}" for source in ("[IN]", *sets) for unit in units)]
    return RenderedTable(context.caption(title("IN", "table2")), header, rows, notes)


def sweep(times: IntegerTimes, context: TableContext) -> RenderedTable:
    """Return the ratios, one row per instruction set, code, widths and d."""
    lengths = sorted({one.n for one in times.comparisons})
    rows: dict[tuple[str, ...], dict[int, Ratio]] = {}
    for one in times.comparisons:
        key = (one.instruction_set, one.code, f"{one.inhibitor_width}/{one.dot_product_width}", str(one.d))
        rows.setdefault(key, {})[one.n] = one.ratio
    header = ["instruction set", "code", "bits of sums", "d", *(f"n = {n}" for n in lengths)]
    cells = [[*key, *(format_ratio(ratios.get(n)) for n in lengths)] for key, ratios in rows.items()]
    caption = "time of the Inhibitor relative to dot products"
    return RenderedTable(context.caption(caption), header, cells, ["bits of sums: Inhibitor/dot product"])


if __name__ == "__main__":
    main()
