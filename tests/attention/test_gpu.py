"""Every mechanism on a GPU, compared with itself in float64 on the CPU."""

import pytest
import torch
from torch._dynamo.utils import counters

from relumt.attention import MECHANISMS, AttentionMask, Need

pytest.importorskip("triton")
from relumt.attention.kernels import inhibitor_triton, pointwise_triton

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")]

TOLERANCE = {torch.float32: 1e-4, torch.float16: 4e-3, torch.bfloat16: 3e-2}


@pytest.mark.parametrize("name", sorted(MECHANISMS))
@pytest.mark.parametrize("dtype", sorted(TOLERANCE, key=str), ids=str)
@pytest.mark.parametrize("need", [Need.NOTHING, Need.ROW_STATS])
@pytest.mark.parametrize("causal", [False, True])
def test_gpu_agrees_with_float64(name, dtype, need, causal):
    generator = torch.Generator().manual_seed(1)
    q, k, v = (torch.randn(2, 4, 100, 64, generator=generator) for _ in range(3))
    if name.startswith("inhibitor"):
        # With unit variance, all pairs would be too far apart to contribute. Multiples of 2⁻⁷ make distances exact, so
        # that rounding does not decide which values are above them: the derivative is 1 there and 0 below.
        q, k, v = (x.mul(factor * 128).round() / 128 for x, factor in ((q, 0.1), (k, 0.1), (v, 1.0)))
    weight = torch.randn(2, 4, 100, 64, generator=generator)
    key_mask = torch.arange(100)[None] < torch.tensor([[100], [70]])
    key_mask[1, :3] = False  # with a causal mask, the first queries see no key
    mechanism = MECHANISMS[name](4, 64)

    def attend(device, inputs, need):
        inputs = [x.to(device).requires_grad_() for x in inputs]
        output = mechanism.to(device)(*inputs, AttentionMask(key_mask.to(device), causal), need).output
        (output * weight.to(device)).sum().backward()
        return [output.detach().double().cpu(), *(x.grad.double().cpu() for x in inputs)]

    rounded = [x.to(dtype) for x in (q, k, v)]
    exact = attend("cpu", [x.double() for x in rounded], Need.NOTHING)
    assert exact[0].ne(0).double().mean() > 0.3
    for actual, expected in zip(attend("cuda", rounded, need), exact, strict=True):
        assert (actual - expected).norm() <= TOLERANCE[dtype] * expected.norm()


@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize("name", ["relu", "sigmoid", "rela_g", "inhibitor"])
def test_one_graph_with_the_kernels_trains_on_all_lengths(name, dropout, monkeypatch):
    kernel = inhibitor_triton if name == "inhibitor" else pointwise_triton
    calls, run_forward = [], kernel.run_forward
    monkeypatch.setattr(kernel, "run_forward", lambda *given: calls.append(1) or run_forward(*given))
    mechanism = MECHANISMS[name](4, 64, dropout).cuda().train()
    torch._dynamo.reset()
    counters.clear()
    compiled = torch.compile(mechanism.forward, backend="aot_eager", fullgraph=True, dynamic=True)

    def train(forward, length):
        generator = torch.Generator("cuda").manual_seed(length)
        q, k, v = (torch.randn(2, 4, length, 64, device="cuda", generator=generator).bfloat16() / 8 for _ in range(3))
        key_mask = torch.arange(length, device="cuda") < torch.tensor([[length], [length - 5]], device="cuda")
        inputs = [x.requires_grad_() for x in (q, k, v)]
        torch.manual_seed(1)
        output, _, row_stats = forward(*inputs, AttentionMask(key_mask, True), Need.ROW_STATS)
        total = output.float().square().sum() + (0 if row_stats is None else row_stats.weight_sum.sum())
        return [output.detach(), *torch.autograd.grad(total, inputs)]

    for length in (33, 64, 65, 300):
        expected = train(mechanism, length)
        calls.clear()
        for ours, theirs in zip(train(compiled, length), expected, strict=True):
            assert (ours - theirs).norm() <= 1e-2 * theirs.norm()
        assert calls
    assert counters["stats"]["unique_graphs"] == 1
