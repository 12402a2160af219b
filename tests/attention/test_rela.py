"""ReLA's norms against [RL] Eq. 4–5 in float64, and what null attention must be."""

import math

import pytest
import torch
from torch import nn

from relumt.attention import MECHANISMS, AttentionMask, Need, cast_saturating
from relumt.attention.norms import EPSILON, LayerNorm, RMSNorm

H, D = 4, 16
E = H * D


def rms(z):
    return math.sqrt(sum(x * x for x in z) / len(z) + EPSILON)


def rms_norm(z, mechanism):
    return [g * x / rms(z) for g, x in zip(mechanism.norm.weight.tolist(), z, strict=True)]


def gated_rms_norm(z, mechanism):
    gains, gates = mechanism.norm.norm.weight.tolist(), mechanism.norm.gate.tolist()
    return [g * x / rms(z) / (1 + math.exp(-w * x)) for g, w, x in zip(gains, gates, z, strict=True)]


def layer_norm(z, norm):
    mean = sum(z) / len(z)
    deviation = math.sqrt(sum((x - mean) ** 2 for x in z) / len(z) + 1e-5)
    terms = zip(norm.weight.tolist(), norm.bias.tolist(), z, strict=True)
    return [g * (x - mean) / deviation + b for g, b, x in terms]


def gated_layer_norm(z, mechanism):
    gates = mechanism.norm.gate.tolist()
    normed = layer_norm(z, mechanism.norm.norm)
    return [y / (1 + math.exp(-w * x)) for w, x, y in zip(gates, z, normed, strict=True)]


MERGED = {
    "rela_unnormalised": lambda z, mechanism: z,
    "rela_rmsnorm": rms_norm,
    "rela_i": rms_norm,
    "rela_g": gated_rms_norm,
    "rela_g_gelu": gated_rms_norm,
    "rela_g_leaky_relu": gated_rms_norm,
    "rela_g_layernorm": gated_layer_norm,
    "relu_layernorm": lambda z, mechanism: layer_norm(z, mechanism.norm),
}
every_norm = pytest.mark.parametrize("name", sorted(MERGED))


def randomised(name):
    """The mechanism, every parameter of its norm drawn anew, so that none keeps a neutral start."""
    torch.manual_seed(1)
    mechanism = MECHANISMS[name](H, D)
    for parameter in mechanism.parameters():
        nn.init.normal_(parameter)
    return mechanism


@every_norm
def test_merged_is_the_equation(name):
    mechanism = randomised(name).double()
    z = torch.randn(2, 3, E, dtype=torch.float64) * torch.tensor([1e-3, 1.0, 1e2], dtype=torch.float64)[:, None]
    postprocess_heads = mechanism.postprocess_heads(z)
    for t in range(2):
        for b in range(3):
            expected = torch.tensor(MERGED[name](z[t, b].tolist(), mechanism), dtype=torch.float64)
            torch.testing.assert_close(postprocess_heads[t, b], expected, rtol=1e-9, atol=1e-12)


@every_norm
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_a_half_model_norms_in_float32_what_half_cannot_hold(name, dtype):
    mechanism = randomised(name).to(dtype)
    z = torch.randn(2, 3, E) * 1e6
    postprocess_heads = mechanism.postprocess_heads(z)
    assert postprocess_heads.dtype == torch.float32
    exact = mechanism.double().postprocess_heads(z.double())
    torch.testing.assert_close(postprocess_heads.double(), exact, rtol=1e-4, atol=1e-4)
    assert cast_saturating(postprocess_heads, dtype).isfinite().all()


@every_norm
def test_scale_does_not_matter_to_a_norm_without_a_gate(name):
    mechanism = randomised(name)
    if isinstance(mechanism.norm, RMSNorm | LayerNorm):
        z = torch.randn(5, 1, E)
        torch.testing.assert_close(
            mechanism.postprocess_heads(z), mechanism.postprocess_heads(1000 * z), rtol=1e-4, atol=1e-4
        )


def test_starts_are_the_papers():
    torch.manual_seed(1)
    gains = torch.cat([MECHANISMS["rela_i"](8, 64).norm.weight for _ in range(20)])
    bound = math.sqrt(3 / 64)
    assert gains.abs().max() <= bound
    assert gains.min() < -0.95 * bound
    assert gains.max() > 0.95 * bound
    gated = [MECHANISMS["rela_g"](8, 64).norm for _ in range(20)]
    gates = torch.cat([norm.gate for norm in gated])
    assert all(torch.equal(norm.norm.weight, torch.ones(512)) for norm in gated)
    bound = math.sqrt(3 / 512)
    assert gates.abs().max() <= bound
    assert gates.max() > 0.95 * bound


WITH_NULL_ROWS = ["relu", "relu_n", "rela_unnormalised", "rela_rmsnorm", "rela_i", "rela_g"]


@pytest.mark.parametrize("name", WITH_NULL_ROWS)
def test_a_row_of_zeros_gives_exactly_zero_finite_gradients_and_is_counted(name):
    """Every score is negative for the first query, and positive for the second."""
    mechanism = MECHANISMS[name](2, 4)
    q = torch.stack([-torch.ones(2, 4), torch.ones(2, 4)], dim=1)[None].requires_grad_()
    k, v = (torch.rand(1, 2, 5, 4, requires_grad=True) for _ in range(2))
    result = mechanism(q, k, v, AttentionMask(), Need.ROW_STATS)
    assert result.row_stats.is_null.tolist() == [[[True, False], [True, False]]]
    postprocess_heads = mechanism.postprocess_heads(result.output.permute(2, 0, 1, 3).flatten(2))
    assert torch.all(postprocess_heads[0] == 0)
    assert torch.all(postprocess_heads[1] != 0)
    (postprocess_heads.sum() + result.row_stats.entropy.sum() + result.row_stats.log_weight_sum.sum()).backward()
    for tensor in (q, k, v, *mechanism.parameters()):
        assert tensor.grad.isfinite().all()
