"""The Triton kernels compile for GPUs that need not be present, and fit into their shared memory."""

import pytest

pytest.importorskip("triton")

from tests.attention.machine_code import SHARED_KIB, run_compiler

COMPILE = """
import sys
from unittest import mock
import torch
from relumt.attention.kernels import inhibitor_triton, pointwise_triton
from tests.attention.machine_code import compiling_for

capability, kib = map(int, sys.argv[1:])
compiled = []

def check(kernel, options, found):
    assert found.metadata.shared <= kib * 1024, (kernel.__name__, options, found.metadata.shared)
    compiled.append(kernel.__name__)

def launch(module, dtype, D, tensors, options, last):
    q, k, v = (torch.empty(2, 2, LENGTH, D, dtype=dtype, device="meta") for _ in range(3))
    outputs = module.run_forward(q, k, v, *tensors, *options, *last)
    grads = outputs if isinstance(outputs, tuple) else [outputs]
    module.run_backward(*grads, q, k, v, *tensors, *options)

with (
    compiling_for(capability, check),
    mock.patch.object(pointwise_triton, "shared_memory", lambda device: kib),
    mock.patch.object(inhibitor_triton, "supports_ptx", lambda: True),
):
    per_head = torch.empty(2, 1, 1, device="meta")
    seed = torch.empty((), dtype=torch.int64, device="meta")
    bounds = torch.empty(2, 2, dtype=torch.int32, device="meta")
    half, single = torch.float16, torch.float32
    for LENGTH, D, dtype in ((64, 64, half), (128, 64, half), (128, 128, torch.bfloat16), (128, 64, single)):
        mask = torch.empty(2, LENGTH, dtype=torch.bool, device="meta")
        f = torch.empty(2, LENGTH, device="meta")
        launch(pointwise_triton, dtype, D, (f, None, None, None, None), ("relu", False, 0.0), (0, dtype))
        launch(pointwise_triton, dtype, D, (f, f, mask, bounds, seed), ("sigmoid", True, 0.1), (2, dtype))
        launch(pointwise_triton, dtype, D, (f, f, mask, bounds, seed), ("relu8", True, 0.1), (1, torch.float32))
        tensors = (per_head, mask, bounds, None, None, seed)
        launch(inhibitor_triton, torch.float32, D, tensors, (8.0, True, 0.1), (LENGTH == 64,))
print(len(compiled), "kernels")
"""


@pytest.mark.slow
@pytest.mark.parametrize(("capability", "kib"), SHARED_KIB.items())
def test_every_kernel_compiles_and_fits_the_gpu(capability, kib, tmp_path):
    assert run_compiler(tmp_path, "-c", COMPILE, capability, kib) == ["48 kernels"]
