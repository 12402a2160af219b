"""The Inhibitor's forward pass in half precision, two numbers an instruction. Equations and shapes: `inhibitor_tiles`.

k and v are of float16, and so is what is done for each pair and dimension: differences, the sum of each half of a
distance's, the sum over RUN keys. Distances times factor less shift and longer sums are in float32. Gradients are not
computed so: of values within 10⁻³ of their z it would be decided otherwise which are above, and that alone is 2 % of a
gradient.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from relumt.attention.kernels.inhibitor_tiles import (
    inhibition,
    keys_of_part,
    load_block,
    load_row,
    positive,
    store_block,
)
from relumt.attention.precision import cast_saturating

RUN = tl.constexpr(4)
"""Keys whose values are added up in float16."""


def rounded(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """q, k and v in float16, held to what it can have; v to what it can add up."""
    most = torch.finfo(torch.float16).max / RUN.value
    return cast_saturating(q, torch.float16), cast_saturating(k, torch.float16), v.clamp(-most, most).half()


@triton.jit
def _sum(x):
    """Over dimensions, in float16; the result in float32."""
    return tl.sum(x, 0).to(tl.float32)


@triton.jit(do_not_specialize=["seed", "T", "S", "part"])
def values(
    Q, K, V, Shift, Keys, Bounds, rate, H, T, S, dropout, seed, part, stride, Mixed,
    D: tl.constexpr, BLOCK_D: tl.constexpr, V_SIZE: tl.constexpr, BLOCK_V: tl.constexpr,
    CAUSAL: tl.constexpr, DROPOUT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A block of queries of one head, along the keys of a part."""
    bh = tl.program_id(0)
    b, h = bh // H, bh % H
    queries = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    dims, columns = tl.arange(0, BLOCK_D // 2), tl.arange(0, BLOCK_V)
    more = BLOCK_D // 2 + dims
    q = load_block(Q, bh, stride, queries, dims, D).to(tl.float16)
    q_more = load_block(Q, bh, stride, queries, more, D).to(tl.float16)
    shift = tl.load(Shift + h)
    mixed = tl.zeros([BLOCK_V, BLOCK], tl.float32)
    start, stop = keys_of_part(Bounds, b, part, T, S, CAUSAL, BLOCK)
    for first in range(start, stop, RUN):
        of_run = tl.zeros([BLOCK_V, BLOCK], tl.float16)
        for i in tl.static_range(RUN):
            key = tl.minimum(first + i, stop - 1)
            k, k_more = load_row(K, bh, S, key, dims, D), load_row(K, bh, S, key, more, D)
            v = load_row(V, bh, S, key, columns, V_SIZE)
            distance = _sum(tl.abs(q - k)) + _sum(tl.abs(q_more - k_more))
            r = inhibition(distance, rate, shift, queries, key, bh, Keys, b, T, S, dropout, seed, CAUSAL, DROPOUT)
            r = tl.where(first + i < stop, r, float("inf"))
            of_run += positive(v - positive(r).to(tl.float16)[None])
        mixed += of_run.to(tl.float32)
    store_block(Mixed, mixed, bh, stride, queries, columns, V_SIZE)
