"""Dropout and factors cost the pointwise kernels few instructions, on GPUs that need not be present."""

import json

import pytest

pytest.importorskip("triton")

from tests.attention.machine_code import SHARED_KIB, run_compiler

COMPILE = """
import itertools, json, sys
from unittest import mock
import torch
from relumt.attention.kernels import pointwise_triton
from tests.attention.machine_code import compiling_for, longest_loop

capability, kib = map(int, sys.argv[1:])

def report(kernel, options, compiled):
    loop = longest_loop(compiled.asm["cubin"])
    config = options["CONFIG"]
    pairs_per_thread = config.block_t * config.block_s / (32 * options["num_warps"])
    spills_and_exchanges = sum(x in line for line in loop for x in ("LDL", "STL", "SHFL"))
    print(json.dumps([len(loop) / pairs_per_thread, spills_and_exchanges]))

with (
    compiling_for(capability, report),
    mock.patch.object(pointwise_triton, "shared_memory", lambda device: kib),
):
    q, k, v = (torch.empty(2, 2, 2048, 64, dtype=torch.bfloat16, device="meta") for _ in range(3))
    factor, bias = (torch.empty(1, 1, device="meta") for _ in range(2))
    seed = torch.empty((), dtype=torch.int64, device="meta")
    for dropout_p, (activation, b, row_sums) in itertools.product((0.0, 0.1), (("relu", None, 0), ("relu8", bias, 1))):
        tensors = (factor, b, None, None, seed if dropout_p else None)
        outputs = pointwise_triton.run_forward(q, k, v, *tensors, activation, False, dropout_p, row_sums, q.dtype)
        pointwise_triton.run_backward(*outputs, q, k, v, *tensors, activation, False, dropout_p)
"""
MOST = {
    90: [4.5, 7, 7.5, 13, 13, 17.5, 9, 12, 15.5, 18.5, 20, 28],
    100: [17.5, 30, 28, 36, 36, 45, 31, 41.5, 59.5, 51.5, 64, 101],
    0: [6.5, 11, 14.5, 14.5, 15, 22.5, 11.5, 15.5, 22, 20, 20.5, 30.5],
}
"""Compute capability, 0 for others → instructions of a warp per 32 pairs of a loop over blocks: forward, gradient of q,
gradients of k and v of `relu`; then of `relu_l1` with power 8; then of both with dropout."""
EXCHANGES = {100: 2, 0: 4}
"""Instructions that exchange values: threads add up a row sum. None spills."""


@pytest.mark.slow
@pytest.mark.parametrize(("capability", "kib"), SHARED_KIB.items())
def test_instructions_per_pair(capability, kib, tmp_path):
    found = [json.loads(line) for line in run_compiler(tmp_path, "-c", COMPILE, capability, kib)]
    exchanges = EXCHANGES.get(capability, EXCHANGES[0])
    assert [wasted for _, wasted in found] == [0, 0, 0, exchanges, 0, 0] * 2
    for (instructions, _), most in zip(found, MOST.get(capability, MOST[0]), strict=True):
        assert instructions <= most, found
