"""ReLA's norms in half precision, their initialization, and null rows. Their equations are in test_equations.py."""

import math

import pytest
import torch
from torch import nn

from relumt.attention import MECHANISMS, AttentionMask, Need, cast_saturating

H, D = 4, 16
E = H * D

every_norm = pytest.mark.parametrize(
    "name", [name for name, spec in MECHANISMS.items() if spec(1, 1).overrides_postprocess_heads]
)


def with_random_norm(name):
    """Build the mechanism with random parameters in its norm, so that none keeps a neutral initialization."""
    torch.manual_seed(1)
    mechanism = MECHANISMS[name](H, D)
    for parameter in mechanism.parameters():
        nn.init.normal_(parameter)
    return mechanism


@every_norm
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_a_half_precision_model_normalizes_in_float32_what_half_precision_cannot_hold(name, dtype):
    mechanism = with_random_norm(name).to(dtype)
    z = torch.randn(2, 3, E) * 1e6
    normalized = mechanism.postprocess_heads(z)
    assert normalized.dtype == torch.float32
    exact = mechanism.double().postprocess_heads(z.double())
    torch.testing.assert_close(normalized.double(), exact, rtol=1e-4, atol=1e-4)
    assert cast_saturating(normalized, dtype).isfinite().all()


def initial_values(name, heads, head_dim, parameter):
    torch.manual_seed(1)
    copies = [MECHANISMS[name](heads, head_dim).norm.get_parameter(parameter) for _ in range(10_000 // E)]
    return torch.cat(copies).detach()


@pytest.mark.parametrize(("name", "parameter"), [("rela_i", "weight"), ("rela_g", "gate")])
@pytest.mark.parametrize("heads", [1, H])
def test_the_gain_of_rela_i_and_the_gate_of_rela_g_have_glorots_distribution_for_the_model_size(name, parameter, heads):
    """U(−√(3/E), √(3/E)), which has a variance of 1/E, for any number of heads.

    [RL] Eq. 4 initializes ReLA-i's gain from U(−√(3/d_h), √(3/d_h)) "assuming only one attention head", so its d_h is
    E. That is Glorot's for a vector of length E, which the authors' code (modules/rela.py of github.com/bzhangGo/zero)
    takes for ReLA-g's gate.
    """
    values = initial_values(name, heads, E // heads, parameter)
    bound = math.sqrt(3 / E)
    assert values.abs().max() <= bound
    assert values.min() < -0.99 * bound and values.max() > 0.99 * bound
    assert values.var().item() == pytest.approx(1 / E, rel=0.05)
    quartiles = values.quantile(torch.tensor([0.25, 0.5, 0.75]))
    torch.testing.assert_close(quartiles, torch.tensor([-bound / 2, 0.0, bound / 2]), rtol=0, atol=0.05 * bound)


@pytest.mark.parametrize("name", ["relu", "relu_n", "rela_unnormalized", "rela_rmsnorm", "rela_i", "rela_g"])
def test_a_null_row_gives_exactly_zero_and_finite_gradients_and_is_counted(name):
    """Every score of the first query is negative, every score of the second positive."""
    mechanism = MECHANISMS[name](2, 4)
    q = torch.stack([-torch.ones(2, 4), torch.ones(2, 4)], dim=1)[None].requires_grad_()
    k, v = (torch.rand(1, 2, 5, 4, requires_grad=True) for _ in range(2))
    result = mechanism(q, k, v, AttentionMask(), Need.ROW_STATS)
    assert result.row_stats.is_null.tolist() == [[[True, False], [True, False]]]
    heads = mechanism.postprocess_heads(result.output.permute(2, 0, 1, 3).flatten(2))  # [B, H, T, D] -> [T, B, E]
    assert torch.all(heads[0] == 0)
    assert torch.all(heads[1] != 0)
    (heads.sum() + result.row_stats.entropy.sum() + result.row_stats.log_weight_sum.sum()).backward()
    for tensor in (q, k, v, *mechanism.parameters()):
        assert tensor.grad.isfinite().all()
