"""Every mechanism that is a product of weights and values against its equation in float64."""

import math
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from relumt.attention import MECHANISMS, AttentionMask, Need
from tests.attention import oracle
from tests.attention.cases import cases


@pytest.mark.parametrize("name", sorted(oracle.ROWS))
@given(case=cases())
def test_weights_and_values_are_the_equation(name, case):
    weights, mixed = oracle.attend(oracle.ROWS[name], case.q, case.k, case.v, case.seen)
    result = MECHANISMS[name](case.H, case.D)(case.q, case.k, case.v, case.mask, Need.WEIGHTS)
    torch.testing.assert_close(result.weights, weights, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(result.output, mixed, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["sparsemax", "entmax15"])
@pytest.mark.parametrize("spread", [1e-3, 0.3, 4.0])
@pytest.mark.parametrize("S", [64, 65, 300])
def test_a_long_row_is_the_equation_whatever_its_support(name, spread, S):
    seeded = torch.Generator().manual_seed(S)
    q, k, v = (torch.randn(1, 1, n, 4, dtype=torch.float64, generator=seeded) for n in (3, S, S))
    seen = torch.ones(1, 1, 3, S, dtype=torch.bool)
    seen[..., 1, 50:] = False
    weights, mixed = oracle.attend(oracle.ROWS[name], spread * q, k, v, seen)
    result = MECHANISMS[name](1, 4)(spread * q, k, v, AttentionMask(attn_mask=seen[0, 0]), Need.WEIGHTS)
    torch.testing.assert_close(result.weights, weights, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(result.output, mixed, rtol=1e-9, atol=1e-12)


@given(case=cases(), gamma=st.floats(0.1, 10), scale=st.sampled_from(["visible", "none"]))
def test_relu_options_are_the_equation(case, gamma, scale):
    row = partial(oracle.relu_row, gamma=gamma, scale=scale)
    _, mixed = oracle.attend(row, case.q, case.k, case.v, case.seen)
    result = MECHANISMS["relu"](case.H, case.D, gamma=gamma, scale=scale)(case.q, case.k, case.v, case.mask)
    torch.testing.assert_close(result.output, mixed, rtol=1e-9, atol=1e-12)


def output_variance(scale, n):
    seeded = torch.Generator().manual_seed(n)
    q, k, v = (torch.randn(1, 8, n, 64, generator=seeded) for _ in range(3))
    return MECHANISMS["relu"](8, 64, scale=scale)(q, k, v, AttentionMask()).output.var().item()


@pytest.mark.parametrize("n", [16, 32, 64, 128, 256, 512, 1024, 2048])
def test_the_scale_factor_holds_the_output_variance(n):
    assert 0.5 <= output_variance("visible", n) <= 2


@pytest.mark.parametrize("n", [16, 128, 2048])
def test_without_the_scale_factor_the_variance_grows_as_half_n(n):
    assert math.isclose(output_variance("none", n), n / 2, rel_tol=0.25)


def test_gamma_must_be_positive():
    with pytest.raises(ValueError, match="--relu-gamma must be positive, not 0"):
        MECHANISMS["relu"](2, 4, gamma=0.0)


def projections(initial_score, initial_gain):
    torch.manual_seed(1)
    q_proj, k_proj = nn.Linear(64, 64), nn.Linear(64, 64)
    before = q_proj.weight.clone(), q_proj.bias.clone()
    mechanism = MECHANISMS["relu"](4, 16, initial_score=initial_score, initial_gain=initial_gain)
    mechanism.init_projections(q_proj, k_proj)
    return q_proj, k_proj, *before


def test_initial_score_is_that_of_every_pair_before_the_random_part():
    q_proj, k_proj, _, _ = projections(0.5, 0.0)
    x = torch.randn(3, 64)
    q, k = (projection(x).unflatten(-1, (4, 16)).transpose(0, 1) for projection in (q_proj, k_proj))
    torch.testing.assert_close(q @ k.transpose(1, 2) / 4, torch.full((4, 3, 3), 0.5))


def test_initial_gain_scales_the_weights_and_a_score_of_0_leaves_the_biases():
    q_proj, _, weight, bias = projections(0.0, 0.25)
    assert torch.equal(q_proj.weight, weight / 4)
    assert torch.equal(q_proj.bias, bias)


def test_initial_score_must_not_be_negative():
    with pytest.raises(ValueError, match="--relu-initial-score must not be negative"):
        MECHANISMS["relu"](2, 4, initial_score=-1.0)
