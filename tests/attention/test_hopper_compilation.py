"""The machine code of the kernels for Hopper, which compiles without a GPU."""

import json
from pathlib import Path

import pytest

pytest.importorskip("triton.experimental.gluon")

from tests.attention.machine_code import run_compiler

MAX_SHARED = 227 * 1024
MAX_INSTRUCTIONS = {
    ("forward", 64, "bfloat16"): 145,
    ("forward", 64, "bfloat16 padded"): 145,
    ("forward", 64, "bfloat16 row_stats"): 380,
    ("forward", 64, "bfloat16 dropout"): 430,
    ("backward_dkdv", 64, "bfloat16"): 325,
    ("backward_dkdv", 64, "bfloat16 dropout"): 450,
    ("backward_dq", 64, "bfloat16"): 315,
    ("backward_dkdv", 64, "bfloat16 row_stats"): 315,
    ("backward_dq_stats", 64, "bfloat16 row_stats"): 510,
    ("forward", 128, "bfloat16"): 152,
    ("forward", 128, "bfloat16 padded"): 153,
    ("forward", 128, "bfloat16 row_stats"): 393,
    ("forward", 128, "bfloat16 dropout"): 440,
    ("backward_dkdv", 128, "bfloat16"): 249,
    ("backward_dkdv", 128, "bfloat16 dropout"): 322,
    ("backward_dq", 128, "bfloat16"): 315,
    ("backward_dkdv", 128, "bfloat16 row_stats"): 362,
    ("backward_dq_stats", 128, "bfloat16 row_stats"): 556,
    ("forward", 64, "bfloat16 relu2"): 210,
    ("backward_dkdv", 64, "bfloat16 relu2"): 212,
    ("backward_dq_stats", 64, "bfloat16 relu2"): 244,
    ("forward", 64, "bfloat16 relu8 bias sums padded"): 636,
    ("backward_dkdv", 64, "bfloat16 relu8 bias sums padded"): 429,
    ("backward_dq_stats", 64, "bfloat16 relu8 bias sums padded"): 649,
    ("forward", 128, "bfloat16 relu2"): 218,
    ("backward_dkdv", 128, "bfloat16 relu2"): 255,
    ("backward_dq_stats", 128, "bfloat16 relu2"): 280,
    ("forward", 128, "bfloat16 relu8 bias sums padded"): 648,
    ("backward_dkdv", 128, "bfloat16 relu8 bias sums padded"): 476,
    ("backward_dq_stats", 128, "bfloat16 relu8 bias sums padded"): 684,
}
"""Instructions of a warp for a block, by head size: a twentieth more than counted with Triton 3.6.

Blocks have 128 keys or queries, but 64 in `backward_dkdv` with 128 dimensions, row sums or powers. Tensor cores need
128 cycles for a product of 64 x 64 x 64 numbers. So a block takes them, with 64 and with 128 dimensions, 512 and 1024
cycles in `forward` and `backward_dq`, 1024 in `backward_dkdv` (512 for 64 queries and 64 dimensions), and 768 and 1536
in `backward_dq_stats`.
"""
MAX_SPILLS = {
    ("backward_dkdv", 128): 6,
    ("backward_dq_stats", 128): 12,
    ("backward_dkdv", 128, "bfloat16 relu8 bias sums padded"): 9,
    ("backward_dkdv", 128, "bfloat16 relu8 bias sums causal dropout"): 16,
}
"""Loads and stores of two warpgroups for a block: about a hundredth of their instructions."""


@pytest.mark.slow
def test_no_kernel_spills_in_its_loop_or_is_serialized_or_has_more_instructions_than_counted(tmp_path):
    """ptxas serializes all products of a warpgroup that lacks registers, without a message."""
    lines = run_compiler(tmp_path, Path(__file__).with_name("compile_hopper.py"))
    results = [json.loads(line) for line in lines]
    assert len(results) == 2 * (2 * 7 + 4) * 3
    for x in results:
        name = x["kernel"], x["head_dim"], x["options"]
        assert x["loops"] >= 2 and not x["serialized"] and x["shared"] <= MAX_SHARED, x
        assert x["spills"] <= MAX_SPILLS.get(name, MAX_SPILLS.get(name[:2], 0)), x
        assert x["instructions"] <= MAX_INSTRUCTIONS.get(name, x["instructions"]), x
    assert MAX_INSTRUCTIONS.keys() <= {(x["kernel"], x["head_dim"], x["options"]) for x in results}
