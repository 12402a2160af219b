"""Dropout and factors cost the pointwise kernels few instructions, on GPUs that need not be present."""

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("triton")

COMPILE = """
import json, sys
from unittest import mock
import torch, triton
from triton.backends.compiler import GPUTarget
from relumt.attention.kernels import pointwise_triton
from tests.attention.machine_code import longest_loop

capability, kib = map(int, sys.argv[1:])
target = GPUTarget("cuda", capability, 32)
triton.runtime.driver.set_active(mock.Mock(get_current_target=lambda: target))
run = triton.JITFunction.run

def compile_only(kernel, *arguments, warmup, **options):
    loop = longest_loop(run(kernel, *arguments, warmup=True, **options).asm["cubin"])
    pairs_per_thread = options["BLOCK_T"] * options["BLOCK_S"] / (32 * options["num_warps"])
    spills_and_exchanges = sum(x in line for line in loop for x in ("LDL", "STL", "SHFL"))
    print(json.dumps([len(loop) / pairs_per_thread, spills_and_exchanges]))

with (
    mock.patch.object(triton.JITFunction, "run", compile_only),
    mock.patch.object(pointwise_triton, "shared_memory", lambda device: kib),
):
    q, k, v = (torch.empty(2, 2, 2048, 64, dtype=torch.bfloat16, device="meta") for _ in range(3))
    factor, seed = torch.empty(2, 1, device="meta"), torch.empty((), dtype=torch.int64, device="meta")
    for dropout_p in (0.0, 0.1):
        tensors = (factor, None, None, None, seed if dropout_p else None)
        output, *_ = pointwise_triton.run_forward(q, k, v, *tensors, "relu", False, dropout_p, False, q.dtype)
        pointwise_triton.run_backward(output, None, None, q, k, v, *tensors, "relu", False, dropout_p)
"""
MOST = {
    90: [4.5, 7, 7.5, 9, 12, 15.5],
    0: [6.5, 11, 14.5, 11.5, 15.5, 22],
}
"""Compute capability, 0 for others → instructions of a warp per 32 pairs of a loop over blocks: forward, gradient of q,
gradients of k and v; then the same with dropout."""


@pytest.mark.slow
@pytest.mark.parametrize(("capability", "kib"), [(80, 163), (86, 99), (89, 99), (90, 227), (120, 99)])
def test_instructions_per_pair(capability, kib, tmp_path):
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-c", COMPILE, str(capability), str(kib)],
        env=environment | {"TRITON_CACHE_DIR": str(tmp_path)}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert all(wasted == 0 for _, wasted in found), found
    for (instructions, _), most in zip(found, MOST.get(capability, MOST[0]), strict=True):
        assert instructions <= most, found
