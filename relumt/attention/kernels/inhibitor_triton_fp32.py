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
from relumt.attention.kernels.triton_common import load_seed


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
    dims, v_dims = tl.arange(0, BLOCK_D), tl.arange(0, BLOCK_V)
    q, shift = load_block(Q, bh, stride, queries, dims, D), tl.load(Shift + h)
    out = tl.zeros([BLOCK_V, BLOCK], tl.float32)
    seed = load_seed(Seed)
    start, stop = key_range(KeyBounds, b, split_size, T, S, CAUSAL, BLOCK)
    for key in range(start, stop):
        k, v = load_vector(K, bh, S, key, dims, D), load_vector(V, bh, S, key, v_dims, V_SIZE)
        r = shift_distances(
            tl.sum(tl.abs(q - k), 0), inv_gamma, shift, queries, key, bh, KeyMask, b, T, S, dropout_p, seed, CAUSAL,
            DROPOUT,
        )  # fmt: skip
        out += positive_part(v - positive_part(r)[None])
    store_block(Out, out, bh, stride, queries, v_dims, V_SIZE)


@triton.jit(do_not_specialize=["T", "S", "split_size"])
def backward_dq(
    Q, GradOut, K, V, Shift, KeyMask, KeyBounds, inv_gamma, H, T, S, dropout_p, Seed, split_size, stride, GradQ,
    GradShift, D: tl.constexpr, BLOCK_D: tl.constexpr, V_SIZE: tl.constexpr, BLOCK_V: tl.constexpr,
    CAUSAL: tl.constexpr, DROPOUT: tl.constexpr, BLOCK: tl.constexpr, USE_PTX: tl.constexpr,
):  # fmt: skip
    """Compute the gradients of q and, one number per query, of α: a block of queries, from a split of the keys."""
    bh = tl.program_id(0)
    b, h = bh // H, bh % H
    queries = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    dims, v_dims = tl.arange(0, BLOCK_D), tl.arange(0, BLOCK_V)
    q, grad = load_block(Q, bh, stride, queries, dims, D), load_block(GradOut, bh, stride, queries, v_dims, V_SIZE)
    shift = tl.load(Shift + h)
    positive_sum, total = tl.zeros([BLOCK_D, BLOCK], tl.float32), tl.zeros([BLOCK], tl.float32)
    seed = load_seed(Seed)
    start, stop = key_range(KeyBounds, b, split_size, T, S, CAUSAL, BLOCK)
    for key in range(start, stop):
        k, v = load_vector(K, bh, S, key, dims, D), load_vector(V, bh, S, key, v_dims, V_SIZE)
        r = shift_distances(
            tl.sum(tl.abs(q - k), 0), inv_gamma, shift, queries, key, bh, KeyMask, b, T, S, dropout_p, seed, CAUSAL,
            DROPOUT,
        )  # fmt: skip
        grad_r = -positive_part_backward(r, tl.sum(heaviside(v - positive_part(r)[None], USE_PTX) * grad, 0))
        positive_sum += heaviside(q - k, USE_PTX) * grad_r[None]
        total += grad_r
    store_block(GradQ, (2 * positive_sum - total[None]) * inv_gamma, bh, stride, queries, dims, D)
    store_block(GradShift, -total[None], bh, stride, queries, tl.arange(0, 1), 1)


@triton.jit(do_not_specialize=["T", "S", "split_size"])
def backward_dkdv(
    K, V, Q, GradOut, Shift, KeyMask, KeyBounds, inv_gamma, H, T, S, dropout_p, Seed, split_size, stride, GradK, GradV,
    D: tl.constexpr, BLOCK_D: tl.constexpr, V_SIZE: tl.constexpr, BLOCK_V: tl.constexpr,
    CAUSAL: tl.constexpr, DROPOUT: tl.constexpr, BLOCK: tl.constexpr, USE_PTX: tl.constexpr,
):  # fmt: skip
    """Compute the gradients of k and v: a block of keys of one head, from a split of the queries."""
    bh = tl.program_id(0)
    b, h = bh // H, bh % H
    keys = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    dims, v_dims = tl.arange(0, BLOCK_D), tl.arange(0, BLOCK_V)
    k, v = load_block(K, bh, stride, keys, dims, D), load_block(V, bh, stride, keys, v_dims, V_SIZE)
    shift = tl.load(Shift + h)
    positive_sum, total = tl.zeros([BLOCK_D, BLOCK], tl.float32), tl.zeros([BLOCK], tl.float32)
    grad_v = tl.zeros([BLOCK_V, BLOCK], tl.float32)
    seed = load_seed(Seed)
    start, stop = query_range(KeyBounds, b, split_size, T, S, CAUSAL, BLOCK)
    for query in range(start, stop):
        q, grad = load_vector(Q, bh, T, query, dims, D), load_vector(GradOut, bh, T, query, v_dims, V_SIZE)
        r = shift_distances(
            tl.sum(tl.abs(k - q), 0), inv_gamma, shift, query, keys, bh, KeyMask, b, T, S, dropout_p, seed, CAUSAL,
            DROPOUT,
        )  # fmt: skip
        grad_difference = heaviside(v - positive_part(r)[None], USE_PTX) * grad  # of v − z, [V, BLOCK]
        grad_r = -positive_part_backward(r, tl.sum(grad_difference, 0))
        grad_v += grad_difference
        positive_sum += heaviside(k - q, USE_PTX) * grad_r[None]
        total += grad_r
    store_block(GradK, (2 * positive_sum - total[None]) * inv_gamma, bh, stride, keys, dims, D)
    store_block(GradV, grad_v, bh, stride, keys, v_dims, V_SIZE)
