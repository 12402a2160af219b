"""The Inhibitor's half-precision kernel has few instructions per pair, on GPUs that need not be present."""

import json

import pytest

pytest.importorskip("triton")

from tests.attention.machine_code import SHARED_KIB, run_compiler

COMPILE = """
import json, sys
from unittest import mock
import torch
from relumt.attention.kernels import inhibitor_triton
from relumt.attention.kernels.inhibitor_triton_fp16 import RUN
from tests.attention.machine_code import compiling_for, longest_loop

def report(kernel, options, compiled):
    loop = longest_loop(compiled.asm["cubin"])
    spills, exchanges = (sum(x in line for line in loop for x in names) for names in (("LDL", "STL"), ("SHFL", "BAR")))
    print(json.dumps([len(loop) / RUN.value * 32 / options["CONFIG"].block, spills, exchanges]))

with (
    compiling_for(int(sys.argv[1]), report),
    mock.patch.object(inhibitor_triton, "supports_ptx", lambda: True),
):
    bounds = torch.empty(2, 2, dtype=torch.int32, device="meta")
    mask = torch.empty(2, 128, dtype=torch.bool, device="meta")
    seed = torch.empty((), dtype=torch.int64, device="meta")
    shift = torch.empty(2, 1, 1, device="meta")
    for D, V, key_mask, key_bounds, causal, dropout_p in (
        (64, 64, None, None, False, 0.0), (64, 64, mask, bounds, False, 0.0), (64, 64, mask, bounds, True, 0.1),
        (64, 128, None, None, False, 0.0), (128, 128, None, None, False, 0.0),
    ):
        q, k = (torch.empty(2, 2, 128, D, device="meta") for _ in range(2))
        v = torch.empty(2, 2, 128, V, device="meta")
        inhibitor_triton.run_forward(
            q, k, v, shift, key_mask, key_bounds, None, None, seed if dropout_p else None, 8.0, causal, dropout_p, True
        )
"""
MOST = [(185, 0, 0), (185, 0, 0), (215, 0, 0), (370, 2, 32), (480, 0, 32)]
"""Instructions of a warp per 32 pairs, and spills and exchanges between threads per loop: plain, with padding, with all
options, signed, and with 128 dimensions. The last two hold 16 queries, so two threads share one."""


@pytest.mark.slow
@pytest.mark.parametrize("capability", SHARED_KIB)
def test_instructions_per_pair(capability, tmp_path):
    found = [json.loads(line) for line in run_compiler(tmp_path, "-c", COMPILE, capability)]
    assert len(found) == len(MOST)
    for numbers, most in zip(found, MOST, strict=True):
        assert all(x <= limit for x, limit in zip(numbers, most, strict=True)), found
