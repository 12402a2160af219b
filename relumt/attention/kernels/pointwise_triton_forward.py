"""The forward kernel behind `pointwise_triton`, and what the backward kernels share with it.

Shapes: B batch, H heads, T queries, S keys, D head size. A program holds a block of queries of one head and visits
blocks of keys. It skips blocks that are all padding or, with a causal mask, all in the future. Products are computed in
the type of the inputs (float32 as three TF32 products) and summed in float32.

A tile of pairs is [queries, keys] here and for q's gradient, but [keys, queries] for the gradients of k and v. The
shared functions serve both: what belongs to queries or keys alone has a dimension of size 1 to broadcast.
"""

# Triton compiles these functions; their arguments are pointers and tl.tensor, which mypy cannot check.
# mypy: allow-untyped-defs, allow-incomplete-defs

import triton
import triton.language as tl
from triton.language.extra import libdevice

from relumt.attention.kernels.triton_common import (
    ON_NVIDIA,
    dropout_mask_tile,
    find_head,
    load_key_bounds,
    load_seed,
    load_tile,
    store_tile,
    zeros,
)

TINY = tl.constexpr(1.1754943508222875e-38)
"""The smallest normal float32, whose logarithm stands in for log 0."""

MAX_FLOAT16 = tl.constexpr(65504.0)
FLOAT32_PRODUCTS = tl.constexpr("tf32x3" if ON_NVIDIA else "ieee")
"""How fp32 numbers are multiplied: on tensor cores as three products of TF32 numbers, which are about as exact."""
LN_2 = tl.constexpr(0.6931471805599453)


UNSPECIALIZED = ["T", "S"]
"""Arguments that change often; Triton would compile another kernel for values that are divisible by 16."""


@triton.jit
def load_key_mask(padding, b, keys, S):
    """Return which of these keys exist and are not padding."""
    if padding.mask is None:
        return keys < S
    else:
        return tl.load(padding.mask + b * S + keys, keys < S, 0) != 0


@triton.jit
def load_per_query(X, SHAPE: tl.constexpr, b, queries, T):
    """Load one number per query, in the shape of `queries` and 0 beyond T; only one if all queries have the same."""
    if SHAPE & 2:
        return tl.load(X + (b * T if SHAPE & 1 else 0) + queries, queries < T, 0.0)
    else:
        return tl.load(X + (b if SHAPE & 1 else 0))


@triton.constexpr_function
def clips_late(config):
    """Return whether negative weights can remain until `round_positive_part` cuts them off: if nothing else sees them.

    Factors can then be left out as well, because ReLU(f·x) = f·ReLU(x) for f > 0.
    """
    return config.activation == "relu" and not config.has_bias and not config.row_sums


@triton.constexpr_function
def scales_late(config, dtype):
    """Return whether factors can multiply sums over keys instead of each weight.

    Not in float16, whose range weights could leave without their factors.
    """
    return clips_late(config) and dtype != tl.float16


@triton.constexpr_function
def weighs_zeros(config):
    """Return whether a score of 0, which a hidden key has because it is loaded as 0, has a weight."""
    return config.activation == "sigmoid" or config.has_bias


@triton.jit
def round_positive_part(x, dtype: tl.constexpr):
    """Round x⁺ to `dtype`, in float16 to its largest number at most; NaN stays NaN."""
    if ON_NVIDIA and dtype == tl.bfloat16:  # one instruction for two numbers
        return tl.inline_asm_elementwise(
            "cvt.rn.relu.bf16x2.f32 $0, $2, $1;", "=r,r,r", [x], dtype=tl.bfloat16, is_pure=True, pack=2
        )
    elif ON_NVIDIA and dtype == tl.float16:
        return tl.inline_asm_elementwise(
            "cvt.rn.relu.satfinite.f16x2.f32 $0, $2, $1;", "=r,r,r", [x], dtype=tl.float16, is_pure=True, pack=2
        )
    else:
        return saturate(tl.maximum(x, 0.0, propagate_nan=tl.PropagateNan.ALL), dtype)


@triton.jit
def saturate(weights, dtype: tl.constexpr):
    """Round weights to `dtype`; in float16, an infinite weight times a value of 0 would be a NaN."""
    if dtype == tl.float16:
        weights = tl.minimum(weights, MAX_FLOAT16, propagate_nan=tl.PropagateNan.ALL)
    return weights.to(dtype)


@triton.jit
def pointwise_weights(products, factor, bias, pairs, ON_DIAGONAL: tl.constexpr, CONFIG: tl.constexpr):
    """Turn products q·k into weights, 0 where causality hides a key. Those of padding and beyond S need not be 0.

    `factor` is None if it is applied later, and `pairs` are queries, keys, T and S. Negative weights remain if
    `clips_late`. Of powers of ReLU, the bases are returned.
    """
    queries, keys, T, S = pairs
    weights = products if factor is None else products * factor
    if bias is not None:
        weights += bias
    if CONFIG.activation == "sigmoid":
        weights = 1 / (1 + tl.exp(-weights))
    elif not clips_late(CONFIG):
        weights = tl.maximum(weights, 0.0, propagate_nan=tl.PropagateNan.ALL)
    if ON_DIAGONAL:
        weights = tl.where(keys <= queries + S - T, weights, 0.0)
    return weights


@triton.jit
def round_weights(weights, dtype: tl.constexpr, CONFIG: tl.constexpr):
    """Round weights to `dtype` and, if it was left for later, cut off negative ones."""
    if clips_late(CONFIG):
        return round_positive_part(weights, dtype)
    else:
        return saturate(weights, dtype)


@triton.jit
def raise_to(x, EXPONENT: tl.constexpr):
    """Return x to a power of at least 1."""
    if EXPONENT == 1:
        return x
    else:
        root = raise_to(x, EXPONENT // 2)
        square = root * root
        return square * x if EXPONENT % 2 else square


@triton.jit
def finite_log2(weights):
    """Return log₂ of weights; log₂ TINY instead of −∞ for 0, so that 0·log 0 is 0."""
    if ON_NVIDIA:  # one instruction instead of twenty, accurate to 22 bits
        return libdevice.fast_log2f(tl.maximum(weights, TINY))
    else:
        return tl.log2(tl.maximum(weights, TINY))


@triton.jit
def diagonal_start(start, stop, T, S, CONFIG: tl.constexpr):
    """Return where the loop over keys from `start` to `stop` needs the causal mask: from the block of the first key on
    that it hides from some query of this program.
    """
    if CONFIG.is_causal:
        seen_by_all = tl.minimum(stop, tl.program_id(1) * CONFIG.block_t + S - T + 1)
        return tl.maximum(start, seen_by_all // CONFIG.block_s * CONFIG.block_s)
    else:
        return stop


@triton.jit
def _add_keys(
    sums, query_side, key_side, sentence, dropout, start, stop, ON_DIAGONAL: tl.constexpr, CONFIG: tl.constexpr
):  # fmt: skip
    """Add the keys from `start` to `stop` to the output and to the row sums; w log w is in base 2.

    Of queries, all but q are [BLOCK_T, 1]; `factor` is None if `scales_late`. Kept weights are not scaled.
    """
    out, weight_sum, w_log_w = sums
    queries, q, factor, bias = query_side
    K, V, padding = key_side
    b, bh, T, S = sentence
    dropout_p, seed = dropout
    for first in range(start, stop, CONFIG.block_s):
        keys = first + tl.arange(0, CONFIG.block_s)
        key_mask = load_key_mask(padding, b, keys, S)
        k, v = load_tile(K, keys, key_mask, CONFIG), load_tile(V, keys, key_mask, CONFIG)
        products = tl.dot(q, tl.trans(k), input_precision=FLOAT32_PRODUCTS)  # [BLOCK_T, BLOCK_S]
        weights = pointwise_weights(products, factor, bias, (queries, keys[None], T, S), ON_DIAGONAL, CONFIG)
        if CONFIG.exponent > 1:
            weights = raise_to(weights, CONFIG.exponent)
        if CONFIG.row_sums and weighs_zeros(CONFIG):
            weights = tl.where(key_mask[None], weights, 0.0)
        if CONFIG.row_sums:
            weight_sum += tl.sum(weights, 1)
        if CONFIG.row_sums == 2:
            w_log_w += tl.sum(weights * finite_log2(weights), 1)
        if CONFIG.has_dropout:
            first_query = tl.program_id(1) * CONFIG.block_t
            kept = dropout_mask_tile(first_query, first, bh, T, dropout_p, seed, CONFIG.block_t, CONFIG.block_s)
            weights = tl.where(kept, weights, 0.0)
        out += tl.dot(round_weights(weights, v.dtype, CONFIG), v, input_precision=FLOAT32_PRODUCTS)
    return out, weight_sum, w_log_w


@triton.jit(do_not_specialize=UNSPECIALIZED)
def forward(Q, K, V, Factor, Bias, padding, dropout, H, T, S, Out, sums, CONFIG: tl.constexpr):
    """Compute the output and row sums of a block of queries of one head.

    Args:
        Q, K, V, Out: `Strided`.
        Factor, Bias: as in `PointwiseParams`, contiguous.
        padding, dropout, sums: `Padding`, `Dropout` and `RowSums`.
        CONFIG: a `PointwiseKernelConfig`.
    """
    bh = tl.program_id(0)
    b, h = bh // H, bh % H
    queries = tl.program_id(1) * CONFIG.block_t + tl.arange(0, CONFIG.block_t)
    query_column = queries[:, None]
    q = load_tile(find_head(Q, b, h), queries, queries < T, CONFIG)
    factor, bias = (  # a tuple, because Triton packs no name that is None
        load_per_query(Factor, CONFIG.factor_shape, b, query_column, T),
        load_per_query(Bias, CONFIG.bias_shape, b, query_column, T) if CONFIG.has_bias else None,
    )
    output_scale = 1 / (1 - dropout.p)
    SCALES_LATE: tl.constexpr = scales_late(CONFIG, V.data.dtype.element_ty)
    if SCALES_LATE:
        factor, output_scale = None, factor * output_scale
    query_side, key_side = (query_column, q, factor, bias), (find_head(K, b, h), find_head(V, b, h), padding)
    sentence, seeded = (b, bh, T, S), (dropout.p, load_seed(dropout.seed))
    results = zeros(CONFIG.block_t, CONFIG.block_d), zeros(CONFIG.block_t), zeros(CONFIG.block_t)
    start, stop = load_key_bounds(padding.bounds, b, S)
    start = start // CONFIG.block_s * CONFIG.block_s
    # Only blocks of keys on the diagonal need the causal mask; they get a loop of their own.
    diagonal = diagonal_start(start, stop, T, S, CONFIG)
    results = _add_keys(results, query_side, key_side, sentence, seeded, start, diagonal, False, CONFIG)
    if CONFIG.is_causal:
        stop = tl.minimum(stop, (tl.program_id(1) + 1) * CONFIG.block_t + S - T)
        results = _add_keys(results, query_side, key_side, sentence, seeded, diagonal, stop, True, CONFIG)
    out, weight_sum, w_log_w = results
    if SCALES_LATE or CONFIG.has_dropout:
        out *= output_scale
    if Out.data.dtype.element_ty == tl.float16:
        out = tl.clamp(out, -MAX_FLOAT16, MAX_FLOAT16, propagate_nan=tl.PropagateNan.ALL)
    store_tile(find_head(Out, b, h), out, queries, queries < T, CONFIG)
    if CONFIG.row_sums:
        tl.store(sums.weight + bh * T + queries, weight_sum, queries < T)
    if CONFIG.row_sums == 2:
        tl.store(sums.w_log_w + bh * T + queries, w_log_w * LN_2, queries < T)
