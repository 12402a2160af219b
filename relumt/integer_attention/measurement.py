"""Checks every kernel against NumPy, then times the Inhibitor and dot products in alternation, in one process."""

import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import get_args

import numpy as np

from relumt.console import track_on_stderr
from relumt.errors import AttemptFailedError
from relumt.integer_attention.kernels import Attention, Code, Kernels, PreparedCall
from relumt.integer_attention.problem import random_problem
from relumt.tables.inhibitor_table2 import Comparison, Width
from relumt.tables.speeds import median_ratio

WIDTH_PAIRS: tuple[tuple[Width, Width], ...] = ((16, 32), (16, 16), (32, 32))
"""Bits of the sums that are compared: the Inhibitor's and the dot product's."""

SAMPLE_SECONDS = 5e-4
"""A kernel is repeated until a sample takes about this long, far more than a call through ctypes."""

System = tuple[str, Code, Attention, Width]
"""Instruction set, code, attention and bits of its sums."""


@dataclass(frozen=True)
class Sizes:
    """What is measured.

    Attributes:
        head_sizes, lengths: every d with every n.
        rounds: alternations.
    """

    head_sizes: tuple[int, ...]
    lengths: tuple[int, ...]
    rounds: int


def measure(kernels: Mapping[tuple[str, Width], Kernels], sizes: Sizes) -> list[Comparison]:
    """Verify and time kernels, by instruction set and width; d by d and n by n.

    Raises:
        AttemptFailedError: a kernel returned something else than NumPy.
    """
    comparisons: list[Comparison] = []
    cells = list(product(sizes.head_sizes, sizes.lengths))
    for d, n in track_on_stderr(cells, "timing"):
        calls = dict(verified_calls(kernels, n, d))
        times = alternate({system: call.run for system, call in calls.items()}, sizes.rounds)
        comparisons += compare(times, d, n)
    return sorted(comparisons, key=lambda one: [name for name, _ in kernels].index(one.instruction_set))


def verified_calls(
    kernels: Mapping[tuple[str, Width], Kernels], n: int, d: int
) -> Iterator[tuple[System, PreparedCall]]:
    """Yield each kernel, bound to the same random problem, after comparing its output with NumPy's."""
    problem = random_problem(n, d)
    expected = {
        (attention, width): built.expected(attention, problem)
        for (_, width), built in kernels.items()
        for attention in get_args(Attention)
    }
    for (name, width), built in kernels.items():
        for code, attention in product(get_args(Code), get_args(Attention)):
            call = built.prepare(attention, code, problem)
            call.run(1)
            if not np.array_equal(call.output, expected[attention, width]):
                system = f"{code} {attention}, {name}, sums of {width} bits, n = {n}, d = {d}"
                raise AttemptFailedError(f"{system}: the kernel's output differs from NumPy's; try another compiler")
            yield (name, code, attention, width), call


def alternate(calls: Mapping[System, Callable[[int], None]], rounds: int) -> dict[System, list[float]]:
    """Return the CPU seconds of one call, per round; the order alternates, and a round of warm-up is left out."""
    repeats = {system: max(1, round(SAMPLE_SECONDS / max(seconds(run, 3), 1e-9))) for system, run in calls.items()}
    times: dict[System, list[float]] = {system: [] for system in calls}
    for round_number in range(rounds + 1):
        for system in list(calls)[:: 1 if round_number % 2 else -1]:
            elapsed = seconds(calls[system], repeats[system])
            if round_number:
                times[system].append(elapsed)
    return times


def seconds(run: Callable[[int], None], repeats: int) -> float:
    """Return the CPU time of this thread per call; that of other processes does not count."""
    start = time.thread_time_ns()
    run(repeats)
    return (time.thread_time_ns() - start) / 1e9 / repeats


def compare(times: Mapping[System, list[float]], d: int, n: int) -> Iterator[Comparison]:
    """Yield the comparisons of all instruction sets, codes and pairs of widths."""
    names = dict.fromkeys(name for name, *_ in times)
    for name, code, (inhibitor_width, dot_product_width) in product(names, get_args(Code), WIDTH_PAIRS):
        own = times[name, code, "inhibitor", inhibitor_width]
        products = times[name, code, "dot_product", dot_product_width]
        ratio = median_ratio([x / y for x, y in zip(own, products, strict=True)])
        own_us, products_us = (statistics.median(seconds) * 1e6 for seconds in (own, products))
        yield Comparison(name, code, inhibitor_width, dot_product_width, d, n, own_us, products_us, ratio)
