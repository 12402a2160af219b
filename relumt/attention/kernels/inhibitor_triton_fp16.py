"""The Inhibitor's forward kernel in half precision, two numbers per instruction.

Equations and shapes: `inhibitor_triton_common`. k and v are float16, and so is the work per pair and dimension:
differences, each half of a distance's sum, and the sum over RUN keys. Scaling and shifting of distances and longer sums
are in float32. The backward pass stays in float32: for values within 10⁻³ of their z, float16 decides differently which
are larger, and that alone changes a gradient by 2%.

Triton packs two numbers into an instruction from version 3.9 on. Before, this kernel is longer than the float32 one
(docs/kernels.md), so it is not used.
"""

# Triton compiles the kernels; their arguments are pointers and tl.tensor, which mypy cannot check.
# mypy: allow-untyped-defs, allow-incomplete-defs

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.torch_version import TorchVersion

from relumt.attention.kernels.inhibitor_triton_common import (
    key_range,
    load_block,
    load_vector,
    positive_part,
    shift_distances,
    store_block,
)
from relumt.attention.kernels.triton_common import load_seed
from relumt.attention.precision import cast_saturating

RUN = tl.constexpr(4)
"""Keys whose contributions are summed in float16."""


MIN_TRITON = "3.9"
"""The first version of Triton that packs two numbers into an instruction."""


def is_packed() -> bool:
    """Return whether this version of Triton packs two float16 numbers into an instruction."""
    return TorchVersion(triton.__version__) >= MIN_TRITON


def cast_inputs(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Cast to float16, clamped to its range; v to a range in which RUN values can be summed."""
    max_v = torch.finfo(torch.float16).max / RUN.value
    return cast_saturating(q, torch.float16), cast_saturating(k, torch.float16), v.clamp(-max_v, max_v).half()


@triton.jit
def _sum_dims(x):
    """Sum over dimensions in float16; return float32."""
    return tl.sum(x, 0).to(tl.float32)


@triton.jit(do_not_specialize=["T", "S", "split_size"])
def forward(
    Q, K, V, Shift, KeyMask, KeyBounds, inv_gamma, H, T, S, dropout_p, Seed, split_size, stride, Out,
    D: tl.constexpr, BLOCK_D: tl.constexpr, V_SIZE: tl.constexpr, BLOCK_V: tl.constexpr,
    CAUSAL: tl.constexpr, DROPOUT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Compute the output of a block of queries of one head from a split of the keys."""
    bh = tl.program_id(0)
    b, h = bh // H, bh % H
    queries = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    # Distances are summed in two halves: the longer a float16 sum, the larger its error.
    dims, v_dims = tl.arange(0, BLOCK_D // 2), tl.arange(0, BLOCK_V)
    more_dims = BLOCK_D // 2 + dims
    q = load_block(Q, bh, stride, queries, dims, D).to(tl.float16)
    more_q = load_block(Q, bh, stride, queries, more_dims, D).to(tl.float16)
    shift = tl.load(Shift + h)
    out = tl.zeros([BLOCK_V, BLOCK], tl.float32)
    seed = load_seed(Seed)
    start, stop = key_range(KeyBounds, b, split_size, T, S, CAUSAL, BLOCK)
    for first in range(start, stop, RUN):
        run_sum = tl.zeros([BLOCK_V, BLOCK], tl.float16)
        for i in tl.static_range(RUN):
            key = tl.minimum(first + i, stop - 1)
            k, more_k = load_vector(K, bh, S, key, dims, D), load_vector(K, bh, S, key, more_dims, D)
            v = load_vector(V, bh, S, key, v_dims, V_SIZE)
            distances = _sum_dims(tl.abs(q - k)) + _sum_dims(tl.abs(more_q - more_k))
            r = shift_distances(
                distances, inv_gamma, shift, queries, key, bh, KeyMask, b, T, S, dropout_p, seed, CAUSAL, DROPOUT
            )
            r = tl.where(first + i < stop, r, float("inf"))
            run_sum += positive_part(v - positive_part(r).to(tl.float16)[None])
        out += run_sum.to(tl.float32)
    store_block(Out, out, bh, stride, queries, v_dims, V_SIZE)
