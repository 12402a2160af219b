"""The Triton kernels compile for GPUs that need not be present, and fit into their shared memory."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("triton")

COMPILE = """
import sys
from unittest import mock
import torch, triton
from triton.backends.compiler import GPUTarget
from relumt.attention.kernels import inhibitor_triton, pointwise_triton

capability, kib = map(int, sys.argv[1:])
triton.runtime.driver.set_active(mock.Mock(get_current_target=lambda: GPUTarget("cuda", capability, 32)))
run, compiled = triton.JITFunction.run, []

def compile_only(kernel, *arguments, warmup, **options):
    found = run(kernel, *arguments, warmup=True, **options)
    assert found.metadata.shared <= kib * 1024, (kernel.__name__, options, found.metadata.shared)
    compiled.append(kernel.__name__)

def launch(module, dtype, D, tensors, options, last):
    q, k, v = (torch.empty(2, 2, LENGTH, D, dtype=dtype, device="meta") for _ in range(3))
    outputs = module.run_forward(q, k, v, *tensors, *options, *last)
    grads = outputs if isinstance(outputs, tuple) else [outputs]
    module.run_backward(*grads, q, k, v, *tensors, *options)

with (
    mock.patch.object(triton.JITFunction, "run", compile_only),
    mock.patch.object(pointwise_triton, "shared_memory", lambda device: kib),
):
    per_head = torch.empty(2, 1, 1, device="meta")
    seed = torch.empty((), dtype=torch.int64, device="meta")
    bounds = torch.empty(2, 2, dtype=torch.int32, device="meta")
    for LENGTH, D, dtype in ((64, 64, torch.float16), (128, 128, torch.bfloat16), (128, 64, torch.float32)):
        mask = torch.empty(2, LENGTH, dtype=torch.bool, device="meta")
        f = torch.empty(2, LENGTH, device="meta")
        launch(pointwise_triton, dtype, D, (f, None, None, None, None), ("relu", False, 0.0), (False, dtype))
        launch(pointwise_triton, dtype, D, (f, f, mask, bounds, seed), ("sigmoid", True, 0.1), (True, dtype))
        tensors = (per_head, mask, bounds, None, None, seed)
        launch(inhibitor_triton, torch.float32, D, tensors, (8.0, True, 0.1), (LENGTH == 64,))
print(len(compiled), "kernels")
"""


@pytest.mark.slow
@pytest.mark.parametrize(("capability", "kib"), [(80, 163), (86, 99), (89, 99), (90, 227), (120, 99)])
def test_every_kernel_compiles_and_fits_the_gpu(capability, kib, tmp_path):
    """`kib`: `max_shared_memory_per_block_optin` in cuda/__device/arch_traits.h of github.com/NVIDIA/cccl."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-c", COMPILE, str(capability), str(kib)],
        env=environment | {"TRITON_CACHE_DIR": str(tmp_path)}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout == "27 kernels\n", done.stderr[-3000:]
