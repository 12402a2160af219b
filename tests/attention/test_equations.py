"""Every mechanism and gate against its equation in float64."""

from copy import deepcopy
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from relumt.attention import GATES, MECHANISMS, AttentionMask, Need, OutputGate
from tests.attention import oracle
from tests.attention.cases import cases, for_each_mechanism

every_mechanism = pytest.mark.parametrize("name", sorted(MECHANISMS))
assert_close = partial(torch.testing.assert_close, rtol=1e-9, atol=1e-12)


def find_oracle(name):
    if name not in oracle.ORACLES:
        pytest.fail(f"the mechanism '{name}' has no oracle; add its equation to ORACLES in tests/attention/oracle.py")
    return oracle.ORACLES[name]


@every_mechanism
@given(case=cases(longest=5))
@for_each_mechanism
def test_weights_and_output_are_the_equation(name, case):
    weights, output = oracle.attend(find_oracle(name).attend, case.q, case.k, case.v, case.visible)
    mechanism = MECHANISMS[name](case.H, case.D)
    result = mechanism(case.q, case.k, case.v, case.mask, Need.WEIGHTS)
    assert_close(result.output, output)
    if mechanism.has_weights:
        assert_close(result.weights, weights)


@every_mechanism
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("need", [Need.NOTHING, Need.WEIGHTS])
def test_half_precision_inputs_are_not_rounded_again(name, dtype, need):
    """Gradients are asked for, because PyTorch's fused attention, which may serve without them, rounds its weights."""
    seeded = torch.Generator().manual_seed(1)
    q, k, v = (torch.randn(2, 2, 20, 8, generator=seeded).mul(2).to(dtype).requires_grad_() for _ in range(3))
    mechanism, mask = MECHANISMS[name](2, 8), AttentionMask(is_causal=True)
    exact = deepcopy(mechanism).double()(q.double(), k.double(), v.double(), mask).output
    error = (mechanism(q, k, v, mask, need).output - exact).norm() / exact.norm()
    assert error < 1e-5


@every_mechanism
def test_postprocessed_heads_are_the_equation(name):
    torch.manual_seed(1)
    mechanism = MECHANISMS[name](4, 8).double()
    for parameter in mechanism.parameters():
        nn.init.normal_(parameter)  # a gain of 1 or a bias of 0 would hide a mistake
    z = torch.randn(2, 3, 32, dtype=torch.float64) * torch.tensor([1e-3, 1.0, 1e2], dtype=torch.float64)[:, None]
    expected = [[find_oracle(name).postprocess_heads(token, mechanism) for token in row] for row in z.tolist()]
    assert_close(mechanism.postprocess_heads(z), torch.tensor(expected, dtype=torch.float64))
    for key, parameter in mechanism.named_parameters():
        if key.endswith("norm.bias"):
            nn.init.zeros_(parameter)  # it is not part of the linear map
    gain, subtracts_mean = mechanism.head_map(z)
    centered = z - z.mean(-1, keepdim=True) if subtracts_mean else z
    assert_close(centered if gain is None else gain * centered, mechanism.postprocess_heads(z))


@pytest.mark.parametrize("name", ["sparsemax", "entmax15"])
@pytest.mark.parametrize("spread", [1e-3, 0.3, 4.0])
@pytest.mark.parametrize("S", [64, 65, 150])
def test_a_long_row_is_the_equation_whatever_its_support(name, spread, S):
    seeded = torch.Generator().manual_seed(S)
    q, k, v = (torch.randn(1, 1, n, 4, dtype=torch.float64, generator=seeded) for n in (3, S, S))
    visible = torch.ones(1, 1, 3, S, dtype=torch.bool)
    visible[..., 1, 50:] = False
    weights, output = oracle.attend(find_oracle(name).attend, spread * q, k, v, visible)
    result = MECHANISMS[name](1, 4)(spread * q, k, v, AttentionMask(attn_mask=visible[0, 0]), Need.WEIGHTS)
    assert_close(result.weights, weights)
    assert_close(result.output, output)


@pytest.mark.parametrize(("name", "equation"), [("relu", oracle.reluformer), ("relu2", oracle.relu2)])
@for_each_mechanism
@given(case=cases(), gamma=st.floats(0.1, 10), scale=st.sampled_from(["visible", "none"]))
def test_relu_options_are_the_equation(name, equation, case, gamma, scale):
    attend = oracle.weighted_sum(partial(equation, gamma=gamma, scale=scale))
    _, output = oracle.attend(attend, case.q, case.k, case.v, case.visible)
    result = MECHANISMS[name](case.H, case.D, gamma=gamma, scale=scale)(case.q, case.k, case.v, case.mask)
    assert_close(result.output, output)


@for_each_mechanism
@given(case=cases(), power=st.integers(1, 32), shift=st.floats(0, 2), slope=st.floats(0.1, 3))
def test_relu_l1_options_are_the_equation(case, power, shift, slope):
    options = {"power": power, "shift": shift, "slope": slope}
    attend = oracle.weighted_sum(partial(oracle.relu_l1, **options))
    _, output = oracle.attend(attend, case.q, case.k, case.v, case.visible)
    result = MECHANISMS["relu_l1"](case.H, case.D, **options)(case.q, case.k, case.v, case.mask)
    assert_close(result.output, output)


@pytest.mark.parametrize("shift", [0.0, 0.1, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("power", [1, 8, 16])
def test_rows_of_relu_l1_sum_to_1_whatever_its_options(power, shift):
    q, k, v = torch.randn(3, 1, 1, 30, 64, generator=torch.Generator().manual_seed(1), dtype=torch.float64).mul(0.7)
    mechanism = MECHANISMS["relu_l1"](1, 64, power=power, shift=shift)
    total = mechanism(q, k, v, AttentionMask(), Need.WEIGHTS).weights.sum(-1)
    torch.testing.assert_close(total, torch.ones_like(total), rtol=0, atol=1e-2)


@pytest.mark.parametrize("shift", [0.0, 0.05, 1.0])
@pytest.mark.parametrize("power", [2, 16, 32])
def test_large_scores_of_relu_l1_are_the_equation_in_float32(power, shift):
    scores = [-31.0, 8.0, 9.0, 14.0, 490.0]  # with the causal mask, each row has a larger one
    q, k = torch.ones(1, 1, 5, 1), torch.tensor(scores).view(1, 1, 5, 1)
    mechanism = MECHANISMS["relu_l1"](1, 1, power=power, shift=shift)
    weights = mechanism(q, k, k, AttentionMask(is_causal=True), Need.WEIGHTS).weights[0, 0]
    for n, row in enumerate(weights, start=1):
        expected = torch.tensor(oracle.relu_l1(scores[:n], n, power, shift))
        torch.testing.assert_close(row[:n], expected, rtol=1e-4, atol=1e-6)


@given(case=cases(), offset=st.sampled_from([-2.5, -0.3, 0.0, 0.7]))
def test_elastic_softmax_is_the_equation_for_every_offset(case, offset):
    mechanism = MECHANISMS["elastic_softmax"](case.H, case.D)
    nn.init.constant_(mechanism.offset, offset)
    attend = oracle.weighted_sum(partial(oracle.elastic_softmax, offset=mechanism.offset[0].item()))
    weights, output = oracle.attend(attend, case.q, case.k, case.v, case.visible)
    result = mechanism(case.q, case.k, case.v, case.mask, Need.WEIGHTS)
    torch.testing.assert_close(result.weights, weights)
    torch.testing.assert_close(result.output, output)


def test_initial_projections_scale_the_weights_and_give_every_pair_the_initial_score():
    torch.manual_seed(1)
    q_proj, k_proj, x = nn.Linear(64, 64), nn.Linear(64, 64), torch.randn(3, 64)
    weight, bias = q_proj.weight.clone(), q_proj.bias.clone()
    MECHANISMS["relu"](4, 16, initial_score=0.0, initial_gain=0.25).init_projections(q_proj, k_proj)
    assert torch.equal(q_proj.weight, weight / 4) and torch.equal(q_proj.bias, bias)
    MECHANISMS["relu"](4, 16, initial_score=0.5, initial_gain=0.0).init_projections(q_proj, k_proj)
    q, k = (projection(x).unflatten(-1, (4, 16)).transpose(0, 1) for projection in (q_proj, k_proj))
    torch.testing.assert_close(q @ k.transpose(1, 2) / 4, torch.full((4, 3, 3), 0.5))
    projections = nn.Linear(8, 8), nn.Linear(8, 8, bias=False)
    with pytest.raises(ValueError, match="initial_score needs projections with biases; pass initial_score=0"):
        MECHANISMS["relu"](2, 4).init_projections(*projections)


@pytest.mark.parametrize("kind", GATES)
def test_gated_heads_are_the_equation(kind):
    torch.manual_seed(1)
    T, B, H, D = 3, 2, 4, 5
    heads, x = (torch.randn(T, B, H * D, dtype=torch.float64) for _ in range(2))
    gate = OutputGate(kind, H * D, H).double()
    gated = gate(heads, x)
    W = gate.proj.weight.T  # Qiu et al. 2025: y ⊙ σ(xW)
    for t in range(T):
        for b in range(B):
            scores = 1 / (1 + (-(x[t, b] @ W)).exp())
            expected = [
                heads[t, b, h * D + d] * (scores[h * D + d] if kind == "elementwise" else scores[h])
                for h in range(H)
                for d in range(D)
            ]
            torch.testing.assert_close(gated[t, b], torch.stack(expected))


def test_an_unknown_gate_is_refused():
    with pytest.raises(ValueError, match="a gate must be one of elementwise, headwise, not 'none'"):
        OutputGate("none", 8, 2)
    with pytest.raises(ValueError, match="embed_dim must be a multiple of num_heads, not 10 and 4"):
        OutputGate("headwise", 10, 4)
