"""The compiled kernels return what NumPy returns, bit for bit, up to their bounds."""

from itertools import product
from typing import get_args

import numpy as np
import pytest

from relumt.errors import AttemptFailedError, UserError
from relumt.integer_attention import oracle
from relumt.integer_attention.compiler import INSTRUCTION_SETS, find_compiler
from relumt.integer_attention.kernels import Attention, Code, Kernels
from relumt.integer_attention.measurement import verified_calls
from relumt.integer_attention.problem import random_problem
from tests.integer_attention.cases import RUNNABLE, D, N, filled, kernels, needs_compiler, problem

pytestmark = needs_compiler

SYSTEMS = list(product(get_args(Attention), get_args(Code)))


def check(built, attention, code, numbers):
    """Run a kernel, and compare all numbers with NumPy's."""
    call = built.prepare(attention, code, numbers)
    call.run(2)
    expected = built.expected(attention, numbers)
    np.testing.assert_array_equal(call.output, expected)
    return expected


def draw(*ranges, seed=0):
    """Return random matrices between the two numbers of each range, which occur."""
    generator = np.random.default_rng(seed)
    matrices = [generator.integers(low, high + 1, (N, D)).astype(np.int16) for low, high in ranges]
    for matrix, (low, high) in zip(matrices, ranges, strict=True):
        matrix[0, 0], matrix[-1, -1] = low, high
    return matrices


@pytest.mark.parametrize("name", RUNNABLE[-1:])
@pytest.mark.parametrize("width", [16, 32])
@pytest.mark.parametrize(("attention", "code"), SYSTEMS)
def test_random_problems_are_computed_exactly(name, width, attention, code):
    for size, seed in (((32, 32), 1), ((96, 64), 2), ((64, 128), 3)):
        expected = check(kernels(name, width), attention, code, random_problem(*size, seed))
        assert len(np.unique(expected)) > 40


@pytest.mark.parametrize("name", RUNNABLE[-1:])
@pytest.mark.parametrize("code", get_args(Code))
def test_16_bits_hold_what_the_bounds_allow(name, code):
    built = kernels(name, 16)
    largest = (2**15 - 1) // D
    at_bounds = [
        problem(q=filled(-32768), k=filled(largest - 32768), v=filled(-32768)),
        problem(q=filled(32767), k=filled(32767 - largest), v=filled(511)),
        problem(*draw((0, largest), (0, largest), (-32768, 511)), shift=6, alpha=3),
        problem(*draw((0, largest), (0, largest), (-32768, 511)), shift=0, alpha=32767),
    ]
    for numbers in at_bounds:
        numbers.require_inhibitor_fits(16)
        check(built, "inhibitor", code, numbers)
    for numbers in (
        problem(q=33, k=-31, v=255),
        problem(q=31, k=33, v=-255),
        problem(*draw((-33, 33), (-31, 31), (-255, 255)), softmax_shift=3),
    ):
        check(built, "dot_product", code, numbers)


@pytest.mark.parametrize("name", RUNNABLE[-1:])
@pytest.mark.parametrize("code", get_args(Code))
def test_32_bits_hold_what_the_bounds_allow(name, code):
    built = kernels(name, 32)
    full = (-32768, 32767)
    for numbers in (
        problem(q=-32768, k=32767, v=32767),
        problem(*draw(full, full, full), shift=5, alpha=7),
        problem(*draw((-99, 99), (-99, 99), full), shift=1, alpha=900),
    ):
        check(built, "inhibitor", code, numbers)
    for numbers in (
        problem(q=8191, k=8192, v=-32768),
        problem(*draw((-8191, 8191), (-8192, 8192), full), softmax_shift=15),
        problem(*draw((-90, 90), (-90, 90), full), softmax_shift=4),
    ):
        check(built, "dot_product", code, numbers)


@pytest.mark.parametrize(("attention", "numbers"), [("inhibitor", problem(v=512)), ("dot_product", problem(v=256))])
def test_a_kernel_is_not_called_beyond_its_bounds(attention, numbers):
    for code in get_args(Code):
        with pytest.raises(UserError, match="could overflow"):
            kernels(RUNNABLE[-1], 16).prepare(attention, code, numbers)


def test_a_wrong_kernel_is_reported_before_anything_is_timed(monkeypatch):
    built = {(RUNNABLE[-1], 16): kernels(RUNNABLE[-1], 16)}
    exact = oracle.inhibitor
    monkeypatch.setattr(oracle, "inhibitor", lambda *arguments: exact(*arguments) + np.eye(32, dtype=np.int64))
    with pytest.raises(AttemptFailedError, match=f"tiled inhibitor, {RUNNABLE[-1]}, sums of 16 bits, n = 32, d = 32"):
        list(verified_calls(built, 32, 32))


@pytest.mark.slow
@pytest.mark.parametrize("width", [16, 32])
@pytest.mark.parametrize("name", list(INSTRUCTION_SETS))
def test_all_instruction_sets_are_built_and_exact_where_they_run(name, width):
    if name not in RUNNABLE:
        assert find_compiler().build(INSTRUCTION_SETS[name], width).is_file()
        return
    for (attention, code), seed in product(SYSTEMS, range(3)):
        check(kernels(name, width), attention, code, random_problem(256, 128, seed))


@pytest.mark.slow
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_other_compilers_build_exact_kernels(compiler, monkeypatch, tmp_path):
    monkeypatch.setenv("CC", compiler)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    try:
        found = find_compiler()
    except UserError:
        pytest.skip(f"{compiler} is not installed")
    for name, width in product(RUNNABLE, (16, 32)):
        for attention, code in SYSTEMS:
            check(Kernels(found, INSTRUCTION_SETS[name], width), attention, code, random_problem(64, 64))
