"""The NumPy oracle, against the attention of relumt in float64 and the exponential function."""

import numpy as np
import pytest
import torch

from relumt.attention import AttentionMask
from relumt.attention.kernels import inhibitor_naive
from relumt.integer_attention import oracle
from relumt.integer_attention.problem import random_problem


def test_the_inhibitor_is_relumts_without_a_scale():
    numbers = random_problem(32, 32, seed=3)
    heads = (torch.from_numpy(x.astype(np.float64))[None, None] for x in (numbers.q, numbers.k, numbers.v))
    shift = torch.full((1, 1, 1), 300.0, dtype=torch.float64)
    expected = inhibitor_naive.attend(*heads, 1.0, shift, AttentionMask(), None)[0, 0]
    found = oracle.inhibitor(numbers.q, numbers.k, numbers.v, 0, 300)
    assert expected.count_nonzero() > 100
    np.testing.assert_array_equal(found, expected.numpy())


def test_a_power_of_two_is_at_most_six_percent_too_large():
    x = np.arange(oracle.MAX_EXPONENT + 1)
    exact, found = 2.0 ** (14 - x / 16), oracle.power_of_two(x)
    assert (found > exact - 1).all() and (found <= 1.062 * exact).all()
    assert found[::16].tolist() == [2 ** (14 - whole) for whole in range(15)] + [0]


@pytest.mark.parametrize(("width", "tolerance"), [(16, 0.02), (32, 0.012)])
def test_the_softmax_is_that_of_base_two(width, tolerance):
    scores = np.random.default_rng(1).integers(-400, 400, (50, 64))
    weights = oracle.softmax(scores, 2, width) / 2 ** oracle.WEIGHT_BITS[width]
    exact = np.exp2((scores - scores.max(1, keepdims=True)) / 64)
    exact /= exact.sum(1, keepdims=True)
    assert (weights.sum(1) <= 1).all() and np.abs(weights - exact).max() < tolerance


def test_the_weights_of_dot_products_mix_the_values():
    numbers = random_problem(32, 32, seed=4)
    output = oracle.dot_product(numbers.q, numbers.k, numbers.v, numbers.softmax_shift, 32)
    scores = numbers.q.astype(float) @ numbers.k.astype(float).T / 2**numbers.softmax_shift / 16
    weights = np.exp2(scores - scores.max(1, keepdims=True))
    expected = weights / weights.sum(1, keepdims=True) @ numbers.v
    assert np.abs(output - expected).max() < 3 and np.abs(expected).max() > 30
