"""Every mechanism on a GPU against itself in float64 on the CPU."""

import pytest
import torch

from relumt.attention import MECHANISMS, Visible, Want, saturated

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")]

TOLERANCE = {torch.float32: 1e-4, torch.float16: 4e-3, torch.bfloat16: 3e-2}


@pytest.mark.parametrize("name", sorted(MECHANISMS))
@pytest.mark.parametrize("dtype", sorted(TOLERANCE, key=str), ids=str)
@pytest.mark.parametrize("want", [Want.NOTHING, Want.STATISTICS])
@pytest.mark.parametrize("causal", [False, True])
def test_gpu_agrees_with_float64(name, dtype, want, causal):
    seeded = torch.Generator().manual_seed(1)
    q, k, v = (torch.randn(2, 4, 100, 64, generator=seeded).to(dtype) for _ in range(3))
    keys = torch.arange(100)[None] < torch.tensor([[100], [70]])
    mechanism = MECHANISMS[name](4, 64)
    exact = mechanism(q.double(), k.double(), v.double(), Visible(keys, causal)).mixed
    on_gpu = mechanism.cuda()(q.cuda(), k.cuda(), v.cuda(), Visible(keys.cuda(), causal), want)
    mixed = saturated(on_gpu.mixed, dtype).double().cpu()
    assert (mixed - exact).norm() <= TOLERANCE[dtype] * exact.norm()
