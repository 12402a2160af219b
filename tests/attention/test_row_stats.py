"""Statistics of attention rows against torch.distributions and by hand."""

import math

import torch
from hypothesis import given
from hypothesis import strategies as st

from relumt.attention import RowStats


def row_stats(weights):
    return RowStats.from_weights(weights, torch.tensor(weights.shape[-1]))


def double(values):
    return torch.tensor(values, dtype=torch.float64)


@given(st.integers(0, 2**32), st.floats(1e-4, 1e4))
def test_entropy_is_that_of_the_normalized_row(seed, size):
    weights = torch.rand(2, 3, 4, 5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * size
    expected = torch.distributions.Categorical(probs=weights).entropy()
    torch.testing.assert_close(row_stats(weights).entropy, expected, rtol=1e-9, atol=1e-9)


def test_statistics_of_rows_computed_by_hand():
    stats = row_stats(double([[0.5, 0.5, 0.0], [3.0, 0.0, 0.0], [0.0, 0.0, 0.0]]))
    torch.testing.assert_close(stats.weight_sum, double([1.0, 3.0, 0.0]))
    torch.testing.assert_close(stats.log_weight_sum, double([0.0, math.log(3), 0.0]), atol=1e-12, rtol=0)
    torch.testing.assert_close(stats.entropy, double([math.log(2), 0.0, 0.0]), atol=1e-12, rtol=0)
    assert stats.is_null.tolist() == [False, False, True]


def test_zero_weights_have_finite_gradients():
    weights = torch.tensor([[0.0, 0.3, 0.0], [0.0, 0.0, 0.0]], requires_grad=True)
    stats = row_stats(weights.relu())
    (stats.entropy.sum() + stats.log_weight_sum.sum()).backward()
    assert weights.grad.isfinite().all()
    assert torch.all(weights.grad[1] == 0)


def test_half_precision_is_summed_in_float32():
    weights = torch.rand(3, 512, generator=torch.Generator().manual_seed(0)).half()
    torch.testing.assert_close(row_stats(weights).entropy, row_stats(weights.double()).entropy.float())


def test_first_and_second_derivatives_are_those_of_the_equation():
    weights = torch.rand(2, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 0.01
    weights.requires_grad_()
    assert torch.autograd.gradcheck(lambda x: row_stats(x).entropy, weights)
    assert torch.autograd.gradgradcheck(lambda x: row_stats(x).entropy, weights)
