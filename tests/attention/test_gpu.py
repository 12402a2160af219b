"""Every mechanism on a GPU against itself in float64 on the CPU."""

import pytest
import torch

from relumt.attention import MECHANISMS, AttentionMask, Need

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")]

TOLERANCE = {torch.float32: 1e-4, torch.float16: 4e-3, torch.bfloat16: 3e-2}


@pytest.mark.parametrize("name", sorted(MECHANISMS))
@pytest.mark.parametrize("dtype", sorted(TOLERANCE, key=str), ids=str)
@pytest.mark.parametrize("need", [Need.NOTHING, Need.ROW_STATS])
@pytest.mark.parametrize("causal", [False, True])
def test_gpu_agrees_with_float64(name, dtype, need, causal):
    seeded = torch.Generator().manual_seed(1)
    # At full size every pair of an Inhibitor's would be too far apart to give anything.
    size = 0.1 if name.startswith("inhibitor") else 1.0
    q, k, v = (torch.randn(2, 4, 100, 64, generator=seeded) * factor for factor in (size, size, 1.0))
    weight = torch.randn(2, 4, 100, 64, generator=seeded)
    keys = torch.arange(100)[None] < torch.tensor([[100], [70]])
    keys[1, :3] = False  # with a causal mask its first queries see nothing
    mechanism = MECHANISMS[name](4, 64)

    def attend(device, inputs, wanted):
        inputs = [x.to(device).requires_grad_() for x in inputs]
        mixed = mechanism.to(device)(*inputs, AttentionMask(keys.to(device), causal), wanted).output
        (mixed * weight.to(device)).sum().backward()
        return [mixed.detach().double().cpu(), *(x.grad.double().cpu() for x in inputs)]

    halves = [x.to(dtype) for x in (q, k, v)]
    exact = attend("cpu", [x.double() for x in halves], Need.NOTHING)
    assert exact[0].ne(0).double().mean() > 0.3
    for ours, theirs in zip(attend("cuda", halves, need), exact, strict=True):
        assert (ours - theirs).norm() <= TOLERANCE[dtype] * theirs.norm()
