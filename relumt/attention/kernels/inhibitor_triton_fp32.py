"""The Inhibitor's kernels in float32. Equations and shapes: `inhibitor_triton_common`.

A sum of terms with signs, Σ ±x, is 2·Σ x over the terms with + less Σ x over all terms, so that a sign costs one
instruction, too.
"""

# Triton compiles these functions; their arguments are pointers and tl.tensor, which mypy cannot check.
# mypy: allow-untyped-defs, allow-incomplete-defs

import triton
import triton.language as tl

from relumt.attention.kernels.inhibitor_triton_common import (
    heaviside,
    key_range,
    load_block,
    load_vector,
    positive_part,
    positive_part_backward,
    query_range,
    shift_distances,
    store_block,
)
from relumt.attention.kernels.triton_common import load_seed, zeros


@triton.jit(do_not_specialize=["T", "S", "split_size"])
def forward(Q, K, V, scaling, padding, dropout, H, T, S, split_size, stride, Out, CONFIG: tl.constexpr):
    """Compute the output of a block of queries of one head from a split of the keys."""
    bh = tl.program_id(0)
    b, h = bh // H, bh % H
    queries = tl.program_id(1) * CONFIG.block + tl.arange(0, CONFIG.block)
    dims, v_dims = tl.arange(0, CONFIG.block_d), tl.arange(0, CONFIG.block_v)
    q, shift = load_block(Q, bh, stride, queries, dims, CONFIG.D), tl.load(scaling.shift + h)
    out = zeros(CONFIG.block_v, CONFIG.block)
    sentence, seeded = (b, bh, T, S), (dropout.p, load_seed(dropout.seed))
    start, stop = key_range(padding, b, split_size, T, S, CONFIG)
    for key in range(start, stop):
        k, v = load_vector(K, bh, S, key, dims, CONFIG.D), load_vector(V, bh, S, key, v_dims, CONFIG.V)
        distances = tl.sum(tl.abs(q - k), 0)
        r = shift_distances(distances, (scaling.inv_gamma, shift), queries, key, sentence, padding, seeded, CONFIG)
        out += positive_part(v - positive_part(r)[None])
    store_block(Out, out, bh, stride, queries, v_dims, CONFIG.V)


@triton.jit(do_not_specialize=["T", "S", "split_size"])
def backward_dq(
    Q, GradOut, K, V, scaling, padding, dropout, H, T, S, split_size, stride, GradQ, GradShift, CONFIG: tl.constexpr
):  # fmt: skip
    """Compute the gradients of q and, one number per query, of α: a block of queries, from a split of the keys."""
    bh = tl.program_id(0)
    b, h = bh // H, bh % H
    queries = tl.program_id(1) * CONFIG.block + tl.arange(0, CONFIG.block)
    dims, v_dims = tl.arange(0, CONFIG.block_d), tl.arange(0, CONFIG.block_v)
    q, grad = (
        load_block(Q, bh, stride, queries, dims, CONFIG.D),
        load_block(GradOut, bh, stride, queries, v_dims, CONFIG.V),
    )
    shift = tl.load(scaling.shift + h)
    positive_sum, total = zeros(CONFIG.block_d, CONFIG.block), zeros(CONFIG.block)
    sentence, seeded = (b, bh, T, S), (dropout.p, load_seed(dropout.seed))
    start, stop = key_range(padding, b, split_size, T, S, CONFIG)
    for key in range(start, stop):
        k, v = load_vector(K, bh, S, key, dims, CONFIG.D), load_vector(V, bh, S, key, v_dims, CONFIG.V)
        distances = tl.sum(tl.abs(q - k), 0)
        r = shift_distances(distances, (scaling.inv_gamma, shift), queries, key, sentence, padding, seeded, CONFIG)
        grad_r = -positive_part_backward(r, tl.sum(heaviside(v - positive_part(r)[None], CONFIG.uses_ptx) * grad, 0))
        positive_sum += heaviside(q - k, CONFIG.uses_ptx) * grad_r[None]
        total += grad_r
    store_block(GradQ, (2 * positive_sum - total[None]) * scaling.inv_gamma, bh, stride, queries, dims, CONFIG.D)
    store_block(GradShift, -total[None], bh, stride, queries, tl.arange(0, 1), 1)


@triton.jit(do_not_specialize=["T", "S", "split_size"])
def backward_dkdv(
    K, V, Q, GradOut, scaling, padding, dropout, H, T, S, split_size, stride, GradK, GradV, CONFIG: tl.constexpr
):  # fmt: skip
    """Compute the gradients of k and v: a block of keys of one head, from a split of the queries."""
    bh = tl.program_id(0)
    b, h = bh // H, bh % H
    keys = tl.program_id(1) * CONFIG.block + tl.arange(0, CONFIG.block)
    dims, v_dims = tl.arange(0, CONFIG.block_d), tl.arange(0, CONFIG.block_v)
    k, v = load_block(K, bh, stride, keys, dims, CONFIG.D), load_block(V, bh, stride, keys, v_dims, CONFIG.V)
    shift = tl.load(scaling.shift + h)
    positive_sum, total = zeros(CONFIG.block_d, CONFIG.block), zeros(CONFIG.block)
    grad_v = zeros(CONFIG.block_v, CONFIG.block)
    sentence, seeded = (b, bh, T, S), (dropout.p, load_seed(dropout.seed))
    start, stop = query_range(padding, b, split_size, T, S, CONFIG)
    for query in range(start, stop):
        q, grad = load_vector(Q, bh, T, query, dims, CONFIG.D), load_vector(GradOut, bh, T, query, v_dims, CONFIG.V)
        distances = tl.sum(tl.abs(k - q), 0)
        r = shift_distances(distances, (scaling.inv_gamma, shift), query, keys, sentence, padding, seeded, CONFIG)
        grad_difference = heaviside(v - positive_part(r)[None], CONFIG.uses_ptx) * grad  # of v − z, [V, BLOCK]
        grad_r = -positive_part_backward(r, tl.sum(grad_difference, 0))
        grad_v += grad_difference
        positive_sum += heaviside(k - q, CONFIG.uses_ptx) * grad_r[None]
        total += grad_r
    store_block(GradK, (2 * positive_sum - total[None]) * scaling.inv_gamma, bh, stride, keys, dims, CONFIG.D)
    store_block(GradV, grad_v, bh, stride, keys, v_dims, CONFIG.V)
