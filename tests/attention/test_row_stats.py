"""Measures of attention rows against torch.distributions and by hand."""

import math

import torch
from hypothesis import given
from hypothesis import strategies as st

from relumt.attention import RowStats


def rows(weights, seen=1):
    return RowStats.from_weights(torch.tensor(weights, dtype=torch.float64), torch.tensor(seen))


@given(st.integers(0, 2**32), st.floats(1e-4, 1e4))
def test_entropy_is_that_of_the_normalised_row(seed, size):
    weights = torch.rand(2, 3, 4, 5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * size
    expected = torch.distributions.Categorical(probs=weights).entropy()
    torch.testing.assert_close(RowStats.from_weights(weights, torch.tensor(5)).entropy, expected, rtol=1e-9, atol=1e-9)


def test_by_hand():
    statistics = rows([[0.5, 0.5, 0.0], [3.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    torch.testing.assert_close(statistics.weight_sum, torch.tensor([1.0, 3.0, 0.0], dtype=torch.float64))
    torch.testing.assert_close(
        statistics.log_weight_sum, torch.tensor([0.0, math.log(3), 0.0], dtype=torch.float64), atol=1e-12, rtol=0
    )
    torch.testing.assert_close(
        statistics.entropy, torch.tensor([math.log(2), 0.0, 0.0], dtype=torch.float64), atol=1e-12, rtol=0
    )
    assert statistics.is_null.tolist() == [False, False, True]


def test_zero_weights_have_finite_gradients():
    weights = torch.tensor([[0.0, 0.3, 0.0], [0.0, 0.0, 0.0]], requires_grad=True)
    statistics = RowStats.from_weights(weights.relu(), torch.tensor(3))
    (statistics.entropy.sum() + statistics.log_weight_sum.sum()).backward()
    assert weights.grad.isfinite().all()
    assert torch.all(weights.grad[1] == 0)


def test_half_precision_is_summed_in_float32():
    weights = torch.rand(3, 512, generator=torch.Generator().manual_seed(0)).half()
    statistics = RowStats.from_weights(weights, torch.tensor(512))
    torch.testing.assert_close(
        statistics.entropy, RowStats.from_weights(weights.double(), torch.tensor(512)).entropy.float()
    )


@given(st.integers(0, 2**32))
def test_derivatives_are_those_of_the_equation_and_so_are_their_own(seed):
    weights = torch.rand(2, 5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) + 0.01
    assert torch.autograd.gradcheck(
        lambda x: RowStats.from_weights(x, torch.tensor(5)).entropy, weights.requires_grad_()
    )
    assert torch.autograd.gradgradcheck(lambda x: RowStats.from_weights(x, torch.tensor(5)).entropy, weights)
