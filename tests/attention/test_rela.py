"""ReLA's norms in half precision, their initialization, and null rows. Their equations are in test_equations.py."""

import math

import pytest
import torch
from torch import nn

from relumt.attention import MECHANISMS, AttentionMask, Need, cast_saturating
from relumt.attention.norms import LayerNorm, RMSNorm

H, D = 4, 16
E = H * D

every_norm = pytest.mark.parametrize("name", [name for name, spec in MECHANISMS.items() if spec(1, 1).has_output_norm])


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


@pytest.mark.parametrize("norm", [RMSNorm, LayerNorm])
def test_scale_does_not_matter_to_a_norm_without_a_gate(norm):
    norm = norm(E)
    z = torch.randn(5, 1, E)
    torch.testing.assert_close(norm(z), norm(1000 * z), rtol=1e-4, atol=1e-4)


def test_gains_and_gates_are_initialized_as_in_the_paper():
    torch.manual_seed(1)
    gains = torch.cat([MECHANISMS["rela_i"](8, 64).norm.weight for _ in range(20)])
    bound = math.sqrt(3 / 64)
    assert gains.abs().max() <= bound
    assert gains.min() < -0.95 * bound
    assert gains.max() > 0.95 * bound
    norms = [MECHANISMS["rela_g"](8, 64).norm for _ in range(20)]
    gates = torch.cat([norm.gate for norm in norms])
    assert all(torch.equal(norm.norm.weight, torch.ones(512)) for norm in norms)
    bound = math.sqrt(3 / 512)
    assert gates.abs().max() <= bound
    assert gates.max() > 0.95 * bound


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
