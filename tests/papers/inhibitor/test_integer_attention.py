"""Integer attention: the NumPy oracle against floating point, and the compiled kernels against the oracle, bit for bit.

The kernels are checked up to the bounds that integer_attention.py names.
"""

import shutil
from functools import cache
from itertools import product

import numpy as np
import pytest
import torch

from relumt.attention import AttentionMask
from relumt.attention.kernels import inhibitor_naive
from relumt.papers.inhibitor import integer_attention
from relumt.papers.inhibitor.integer_attention import ATTENTIONS, CODES, Kernels, Problem, random_problem
from relumt.papers.inhibitor.table2 import available_sets

N, D = 64, 32
LATEST = available_sets()[-1]
SYSTEMS = list(product(ATTENTIONS, CODES))
needs_compiler = pytest.mark.skipif(not shutil.which("cc"), reason="needs a C compiler")


@cache
def kernels(name, width):
    """Return kernels that are built once for all tests."""
    return Kernels(name, width)


def filled(number):
    """Return a matrix of one number."""
    return np.full((N, D), number, np.int16)


def problem(q=0, k=0, v=0, shift=0, alpha=0, softmax_shift=0):
    """Return a problem from matrices, or from the numbers that fill them."""
    matrices = [x if isinstance(x, np.ndarray) else filled(x) for x in (q, k, v)]
    return Problem(*matrices, shift, alpha, softmax_shift)


def test_the_inhibitor_is_relumts_without_a_scale():
    numbers = random_problem(32, 32, seed=3)
    heads = (torch.from_numpy(x.astype(np.float64))[None, None] for x in (numbers.q, numbers.k, numbers.v))
    shift = torch.full((1, 1, 1), 300.0, dtype=torch.float64)
    expected = inhibitor_naive.attend(*heads, 1.0, shift, AttentionMask(), None)[0, 0]
    found = integer_attention.inhibitor(numbers.q, numbers.k, numbers.v, 0, 300)
    assert expected.count_nonzero() > 100
    np.testing.assert_array_equal(found, expected.numpy())


def test_a_power_of_two_is_at_most_six_percent_too_large():
    x = np.arange(integer_attention.MAX_EXPONENT + 1)
    exact, found = 2.0 ** (14 - x / 16), integer_attention.power_of_two(x)
    assert (found > exact - 1).all() and (found <= 1.062 * exact).all()
    assert found[::16].tolist() == [2 ** (14 - whole) for whole in range(15)] + [0]


@pytest.mark.parametrize(("width", "tolerance"), [(16, 0.02), (32, 0.012)])
def test_the_softmax_is_that_of_base_two(width, tolerance):
    scores = np.random.default_rng(1).integers(-400, 400, (50, 64))
    weights = integer_attention.softmax(scores, 2, width) / 2 ** integer_attention.WEIGHT_BITS[width]
    exact = np.exp2((scores - scores.max(1, keepdims=True)) / 64)
    exact /= exact.sum(1, keepdims=True)
    assert (weights.sum(1) <= 1).all() and np.abs(weights - exact).max() < tolerance


def test_the_weights_of_dot_products_mix_the_values():
    numbers = random_problem(32, 32, seed=4)
    output = integer_attention.dot_product(numbers.q, numbers.k, numbers.v, numbers.softmax_shift, 32)
    scores = numbers.q.astype(float) @ numbers.k.astype(float).T / 2**numbers.softmax_shift / 16
    weights = np.exp2(scores - scores.max(1, keepdims=True))
    expected = weights / weights.sum(1, keepdims=True) @ numbers.v
    assert np.abs(output - expected).max() < 3 and np.abs(expected).max() > 30


@pytest.mark.parametrize("size", [(32, 32), (256, 128)])
def test_random_problems_are_within_the_bounds_of_16_bits(size):
    n, d = size
    numbers = random_problem(n, d)
    q, k, v = (x.astype(int) for x in (numbers.q, numbers.k, numbers.v))
    assert d * np.abs(q[:, None] - k).max() < 2**15 and n * v.max() < 2**15
    assert d * np.abs(q).max() * np.abs(k).max() < 2**15 and 2**7 * np.abs(v).max() < 2**15


def check(built, attention, code, numbers):
    """Run a kernel, and compare all numbers with NumPy's."""
    run, output = built.prepare(attention, code, numbers)
    run(2)
    expected = numbers.expected(attention, built.width)
    np.testing.assert_array_equal(output, expected)
    return expected


def draw(*ranges, seed=0):
    """Return random matrices between the two numbers of each range, which occur."""
    generator = np.random.default_rng(seed)
    matrices = [generator.integers(low, high + 1, (N, D)).astype(np.int16) for low, high in ranges]
    for matrix, (low, high) in zip(matrices, ranges, strict=True):
        matrix[0, 0], matrix[-1, -1] = low, high
    return matrices


@needs_compiler
@pytest.mark.parametrize("width", [16, 32])
@pytest.mark.parametrize(("attention", "code"), SYSTEMS)
def test_random_problems_are_computed_exactly(width, attention, code):
    for size, seed in (((32, 32), 1), ((96, 64), 2), ((64, 128), 3)):
        expected = check(kernels(LATEST, width), attention, code, random_problem(*size, seed))
        assert len(np.unique(expected)) > 40


LARGEST = (2**15 - 1) // D
FULL = (-32768, 32767)
AT_BOUNDS = {
    (16, "inhibitor"): [
        problem(q=filled(-32768), k=filled(LARGEST - 32768), v=filled(-32768)),
        problem(q=filled(32767), k=filled(32767 - LARGEST), v=filled(511)),
        problem(*draw((0, LARGEST), (0, LARGEST), (-32768, 511)), shift=6, alpha=3),
        problem(*draw((0, LARGEST), (0, LARGEST), (-32768, 511)), shift=0, alpha=32767),
    ],
    (16, "dot_product"): [
        problem(q=33, k=-31, v=255),
        problem(q=31, k=33, v=-255),
        problem(*draw((-33, 33), (-31, 31), (-255, 255)), softmax_shift=3),
    ],
    (32, "inhibitor"): [
        problem(q=-32768, k=32767, v=32767),
        problem(*draw(FULL, FULL, FULL), shift=5, alpha=7),
        problem(*draw((-99, 99), (-99, 99), FULL), shift=1, alpha=900),
    ],
    (32, "dot_product"): [
        problem(q=8191, k=8192, v=-32768),
        problem(*draw((-8191, 8191), (-8192, 8192), FULL), softmax_shift=15),
        problem(*draw((-90, 90), (-90, 90), FULL), softmax_shift=4),
    ],
}
"""Width of the sums and attention -> problems that reach the bounds of integer_attention.py."""


@needs_compiler
@pytest.mark.parametrize(("width", "attention"), AT_BOUNDS)
@pytest.mark.parametrize("code", CODES)
def test_sums_hold_what_the_bounds_allow(width, attention, code):
    for numbers in AT_BOUNDS[width, attention]:
        check(kernels(LATEST, width), attention, code, numbers)
