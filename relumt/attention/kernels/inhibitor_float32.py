"""The Inhibitor's kernels in float32. Equations and shapes: `inhibitor_tiles`.

A sum of signed numbers, Σ ±x, is 2·Σ x over those with + less Σ x over all, so that a sign is one instruction too.
"""

import triton
import triton.language as tl

from relumt.attention.kernels.inhibitor_tiles import (
    above,
    inhibition,
    keys_of_part,
    load_block,
    load_row,
    positive,
    queries_of_part,
    store_block,
    through,
)


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
    dims, columns = tl.arange(0, BLOCK_D), tl.arange(0, BLOCK_V)
    q, shift = load_block(Q, bh, stride, queries, dims, D), tl.load(Shift + h)
    mixed = tl.zeros([BLOCK_V, BLOCK], tl.float32)
    start, stop = keys_of_part(Bounds, b, part, T, S, CAUSAL, BLOCK)
    for key in range(start, stop):
        k, v = load_row(K, bh, S, key, dims, D), load_row(V, bh, S, key, columns, V_SIZE)
        r = inhibition(
            tl.sum(tl.abs(q - k), 0), rate, shift, queries, key, bh, Keys, b, T, S, dropout, seed, CAUSAL, DROPOUT
        )
        mixed += positive(v - positive(r)[None])
    store_block(Mixed, mixed, bh, stride, queries, columns, V_SIZE)


@triton.jit(do_not_specialize=["seed", "T", "S", "part"])
def gradients_of_queries(
    Q, Grad, K, V, Shift, Keys, Bounds, rate, H, T, S, dropout, seed, part, stride, GradQ, OfQueries,
    D: tl.constexpr, BLOCK_D: tl.constexpr, V_SIZE: tl.constexpr, BLOCK_V: tl.constexpr,
    CAUSAL: tl.constexpr, DROPOUT: tl.constexpr, BLOCK: tl.constexpr, PTX: tl.constexpr,
):  # fmt: skip
    """Of q and, a number for each query, of α: a block of queries of one head, along the keys of a part."""
    bh = tl.program_id(0)
    b, h = bh // H, bh % H
    queries = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    dims, columns = tl.arange(0, BLOCK_D), tl.arange(0, BLOCK_V)
    q, grad = load_block(Q, bh, stride, queries, dims, D), load_block(Grad, bh, stride, queries, columns, V_SIZE)
    shift = tl.load(Shift + h)
    of_larger, of_all = tl.zeros([BLOCK_D, BLOCK], tl.float32), tl.zeros([BLOCK], tl.float32)
    start, stop = keys_of_part(Bounds, b, part, T, S, CAUSAL, BLOCK)
    for key in range(start, stop):
        k, v = load_row(K, bh, S, key, dims, D), load_row(V, bh, S, key, columns, V_SIZE)
        r = inhibition(
            tl.sum(tl.abs(q - k), 0), rate, shift, queries, key, bh, Keys, b, T, S, dropout, seed, CAUSAL, DROPOUT
        )
        of_r = -through(r, tl.sum(above(v - positive(r)[None], PTX) * grad, 0))
        of_larger += above(q - k, PTX) * of_r[None]
        of_all += of_r
    store_block(GradQ, (2 * of_larger - of_all[None]) * rate, bh, stride, queries, dims, D)
    store_block(OfQueries, -of_all[None], bh, stride, queries, tl.arange(0, 1), 1)


@triton.jit(do_not_specialize=["seed", "T", "S", "part"])
def gradients_of_keys(
    K, V, Q, Grad, Shift, Keys, Bounds, rate, H, T, S, dropout, seed, part, stride, GradK, GradV,
    D: tl.constexpr, BLOCK_D: tl.constexpr, V_SIZE: tl.constexpr, BLOCK_V: tl.constexpr,
    CAUSAL: tl.constexpr, DROPOUT: tl.constexpr, BLOCK: tl.constexpr, PTX: tl.constexpr,
):  # fmt: skip
    """Of k and v: a block of keys of one head, along the queries of a part."""
    bh = tl.program_id(0)
    b, h = bh // H, bh % H
    keys = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    dims, columns = tl.arange(0, BLOCK_D), tl.arange(0, BLOCK_V)
    k, v = load_block(K, bh, stride, keys, dims, D), load_block(V, bh, stride, keys, columns, V_SIZE)
    shift = tl.load(Shift + h)
    of_larger, of_all = tl.zeros([BLOCK_D, BLOCK], tl.float32), tl.zeros([BLOCK], tl.float32)
    grad_v = tl.zeros([BLOCK_V, BLOCK], tl.float32)
    start, stop = queries_of_part(Bounds, b, part, T, S, CAUSAL, BLOCK)
    for query in range(start, stop):
        q, grad = load_row(Q, bh, T, query, dims, D), load_row(Grad, bh, T, query, columns, V_SIZE)
        r = inhibition(
            tl.sum(tl.abs(k - q), 0), rate, shift, query, keys, bh, Keys, b, T, S, dropout, seed, CAUSAL, DROPOUT
        )
        of_pair = above(v - positive(r)[None], PTX) * grad
        of_r = -through(r, tl.sum(of_pair, 0))
        grad_v += of_pair
        of_larger += above(k - q, PTX) * of_r[None]
        of_all += of_r
    store_block(GradK, (2 * of_larger - of_all[None]) * rate, bh, stride, keys, dims, D)
    store_block(GradV, grad_v, bh, stride, keys, columns, V_SIZE)
