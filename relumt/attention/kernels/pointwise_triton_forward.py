"""The forward kernel behind `pointwise_triton.attend`, and what the backward kernels share with it.

Shapes: B batch, H heads, T queries, S keys, D head size. A program holds a block of queries of one head and visits
blocks of keys. It skips blocks that are all padding or, with a causal mask, all in the future. Products are computed in
the type of the inputs (float32 as three TF32 products) and summed in float32.

Arguments in capitals are pointers; k_b, k_h, k_s and k_d are the strides of K, in elements. A tile of pairs is
[queries, keys] here and for q's gradient, but [keys, queries] for the gradients of k and v. The shared functions serve
both: what belongs to queries or keys alone has a dimension of size 1 to broadcast.
"""

# Triton compiles these functions; their arguments are pointers and tl.tensor, which mypy cannot check.
# mypy: allow-untyped-defs, allow-incomplete-defs

import triton
import triton.language as tl
from triton.language.extra import libdevice

from relumt.attention.kernels.pointwise_params import exponent
from relumt.attention.kernels.triton_common import (
    ON_NVIDIA,
    dropout_mask_tile,
    load_key_bounds,
    load_seed,
    load_tile,
    store_tile,
)

TINY = tl.constexpr(1.1754943508222875e-38)
"""The smallest normal float32, whose logarithm stands in for log 0."""

MAX_FLOAT16 = tl.constexpr(65504.0)
FLOAT32_PRODUCTS = tl.constexpr("tf32x3" if ON_NVIDIA else "ieee")
"""How fp32 numbers are multiplied: on tensor cores as three products of TF32 numbers, which are about as exact."""
LN_2 = tl.constexpr(0.6931471805599453)

exponent_of = triton.constexpr_function(exponent)

UNSPECIALIZED = ["T", "S", "f_b", "f_t", "b_b", "b_t"]
"""Arguments that change often; Triton would compile another kernel for values that are divisible by 16."""


@triton.jit
def load_key_mask(KeyMask, b, keys, S):
    """Return which of these keys exist and are not padding."""
    if KeyMask is None:
        return keys < S
    else:
        return tl.load(KeyMask + b * S + keys, keys < S, 0) != 0


@triton.jit
def load_per_query(X, stride_b, stride_t, b, queries, T):
    """Load one number per query, in the shape of `queries` and 0 beyond T; only one without `stride_t`."""
    if stride_t is None:
        return tl.load(X + b * stride_b)
    else:
        return tl.load(X + b * stride_b + queries * stride_t, queries < T, 0.0)


@triton.constexpr_function
def clips_late(Bias, ACTIVATION, ROW_SUMS):
    """Return whether negative weights can remain until `round_positive_part` cuts them off: if nothing else sees them.

    Factors can then be left out as well, because ReLU(f·x) = f·ReLU(x) for f > 0.
    """
    return ACTIVATION == "relu" and Bias is None and not ROW_SUMS


@triton.constexpr_function
def scales_late(Bias, dtype, ACTIVATION, ROW_SUMS):
    """Return whether factors can multiply sums over keys instead of each weight.

    Not in float16, whose range weights could leave without their factors.
    """
    return clips_late(Bias, ACTIVATION, ROW_SUMS) and dtype != tl.float16


@triton.constexpr_function
def weighs_zeros(Bias, ACTIVATION):
    """Return whether a score of 0, which a hidden key has because it is loaded as 0, has a weight."""
    return ACTIVATION == "sigmoid" or Bias is not None


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
def pointwise_weights(
    products, factor, bias, queries, keys, T, S, ACTIVATION: tl.constexpr, ON_DIAGONAL: tl.constexpr
):  # fmt: skip
    """Turn products q·k into weights, 0 where causality hides a key. Those of padding and beyond S need not be 0.

    ACTIVATION is "identity" if `clips_late`, and `factor` is None if it is applied later. Of powers of ReLU, the bases
    are returned.
    """
    scores = products if factor is None else products * factor
    if bias is not None:
        scores += bias
    if ACTIVATION == "identity":
        weights = scores
    elif ACTIVATION == "sigmoid":
        weights = 1 / (1 + tl.exp(-scores))
    else:
        weights = tl.maximum(scores, 0.0, propagate_nan=tl.PropagateNan.ALL)
    if ON_DIAGONAL:
        weights = tl.where(keys <= queries + S - T, weights, 0.0)
    return weights


@triton.jit
def raise_to(x, EXPONENT: tl.constexpr):
    """Return x to a power from 0 to 15, in at most six products."""
    result = 1.0
    for bit in tl.static_range(4):
        if EXPONENT >> bit & 1:
            result = x * result
        x *= x
    return result


@triton.jit
def finite_log2(weights):
    """Return log₂ of weights; log₂ TINY instead of −∞ for 0, so that 0·log 0 is 0."""
    if ON_NVIDIA:  # one instruction instead of twenty, accurate to 22 bits
        return libdevice.fast_log2f(tl.maximum(weights, TINY))
    else:
        return tl.log2(tl.maximum(weights, TINY))


@triton.jit
def diagonal_start(start, stop, T, S, BLOCK_T: tl.constexpr, BLOCK_S: tl.constexpr):
    """Return the first key that a causal mask hides from some query of this program, rounded down to a whole block."""
    seen_by_all = tl.minimum(stop, tl.program_id(1) * BLOCK_T + S - T + 1)
    return tl.maximum(start, seen_by_all // BLOCK_S * BLOCK_S)


@triton.jit
def _add_keys(
    sums, query_side, keys_and_values, sentence, dropout, start, stop, dims, D: tl.constexpr, ACTIVATION: tl.constexpr,
    ON_DIAGONAL: tl.constexpr, ROW_SUMS: tl.constexpr, DROPOUT: tl.constexpr, BLOCK_S: tl.constexpr,
):  # fmt: skip
    """Add the keys from `start` to `stop` to the output and to the row sums; w log w is in base 2.

    Of queries, all but q are [BLOCK_T, 1]; `factor` is None if `scales_late`. Kept weights are not scaled.
    """
    out, weight_sum, w_log_w = sums
    queries, q, factor, bias = query_side
    K, k_s, k_d, V, v_s, v_d, KeyMask = keys_and_values
    b, bh, T, S = sentence
    dropout_p, seed = dropout
    CLIPS_LATE: tl.constexpr = clips_late(bias, ACTIVATION, ROW_SUMS)
    for first in range(start, stop, BLOCK_S):
        keys = first + tl.arange(0, BLOCK_S)
        key_mask = load_key_mask(KeyMask, b, keys, S)
        k = load_tile(K, k_s, k_d, keys, key_mask, dims, D)
        v = load_tile(V, v_s, v_d, keys, key_mask, dims, D)
        products = tl.dot(q, tl.trans(k), input_precision=FLOAT32_PRODUCTS)  # [BLOCK_T, BLOCK_S]
        weights = pointwise_weights(
            products, factor, bias, queries, keys[None], T, S, "identity" if CLIPS_LATE else ACTIVATION, ON_DIAGONAL,
        )  # fmt: skip
        if exponent_of(ACTIVATION) > 1:
            weights = raise_to(weights, exponent_of(ACTIVATION))
        if ROW_SUMS and weighs_zeros(bias, ACTIVATION):
            weights = tl.where(key_mask[None], weights, 0.0)
        if ROW_SUMS:
            weight_sum += tl.sum(weights, 1)
        if ROW_SUMS == 2:
            w_log_w += tl.sum(weights * finite_log2(weights), 1)
        if DROPOUT:
            first_query = tl.program_id(1) * q.shape[0]
            kept = dropout_mask_tile(first_query, first, bh, T, dropout_p, seed, q.shape[0], BLOCK_S)
            weights = tl.where(kept, weights, 0.0)
        rounded = round_positive_part(weights, v.dtype) if CLIPS_LATE else saturate(weights, v.dtype)
        out += tl.dot(rounded, v, input_precision=FLOAT32_PRODUCTS)
    return out, weight_sum, w_log_w


@triton.jit(do_not_specialize=UNSPECIALIZED)
def forward(
    Q, q_b, q_h, q_t, q_d, K, k_b, k_h, k_s, k_d, V, v_b, v_h, v_s, v_d, KeyMask, KeyBounds,
    Factor, f_b, f_t, Bias, b_b, b_t, H, T, S, dropout_p, Seed,
    Out, o_b, o_h, o_t, o_d, WeightSum, WLogW,
    D: tl.constexpr, BLOCK_D: tl.constexpr, ACTIVATION: tl.constexpr, CAUSAL: tl.constexpr, ROW_SUMS: tl.constexpr,
    DROPOUT: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_S: tl.constexpr,
):  # fmt: skip
    """Compute the output and row sums of a block of queries of one head."""
    bh = tl.program_id(0)
    b, h = bh // H, bh % H
    queries = tl.program_id(1) * BLOCK_T + tl.arange(0, BLOCK_T)
    dims = tl.arange(0, BLOCK_D)
    q = load_tile(Q + b.to(tl.int64) * q_b + h * q_h, q_t, q_d, queries, queries < T, dims, D)
    query_column = queries[:, None]
    factor, bias = load_per_query(Factor, f_b, f_t, b, query_column, T), None
    if Bias is not None:
        bias = load_per_query(Bias, b_b, b_t, b, query_column, T)
    seed, output_scale = load_seed(Seed), 1 / (1 - dropout_p)
    SCALES_LATE: tl.constexpr = scales_late(Bias, V.dtype.element_ty, ACTIVATION, ROW_SUMS)
    if SCALES_LATE:
        factor, output_scale = None, factor * output_scale
    K += b.to(tl.int64) * k_b + h * k_h
    V += b.to(tl.int64) * v_b + h * v_h
    out = tl.zeros([BLOCK_T, BLOCK_D], tl.float32)
    weight_sum, w_log_w = tl.zeros([BLOCK_T], tl.float32), tl.zeros([BLOCK_T], tl.float32)
    sums = (out, weight_sum, w_log_w)
    query_side = (query_column, q, factor, bias)
    keys_and_values = (K, k_s, k_d, V, v_s, v_d, KeyMask)
    sentence, dropout = (b, bh, T, S), (dropout_p, seed)
    start, stop = load_key_bounds(KeyBounds, b, S)
    start = start // BLOCK_S * BLOCK_S
    # Only blocks of keys on the diagonal need the causal mask; they get a loop of their own.
    diagonal = stop if not CAUSAL else diagonal_start(start, stop, T, S, BLOCK_T, BLOCK_S)
    sums = _add_keys(
        sums, query_side, keys_and_values, sentence, dropout, start, diagonal, dims, D, ACTIVATION, False, ROW_SUMS,
        DROPOUT, BLOCK_S,
    )  # fmt: skip
    if CAUSAL:
        stop = tl.minimum(stop, (tl.program_id(1) + 1) * BLOCK_T + S - T)
        sums = _add_keys(
            sums, query_side, keys_and_values, sentence, dropout, diagonal, stop, dims, D, ACTIVATION, True, ROW_SUMS,
            DROPOUT, BLOCK_S,
        )  # fmt: skip
    out, weight_sum, w_log_w = sums
    if SCALES_LATE or DROPOUT:
        out *= output_scale
    if Out.dtype.element_ty == tl.float16:
        out = tl.clamp(out, -MAX_FLOAT16, MAX_FLOAT16, propagate_nan=tl.PropagateNan.ALL)
    store_tile(Out + b.to(tl.int64) * o_b + h * o_h, out, o_t, o_d, queries, queries < T, dims, D)
    if ROW_SUMS:
        tl.store(WeightSum + bh * T + queries, weight_sum, queries < T)
    if ROW_SUMS == 2:
        tl.store(WLogW + bh * T + queries, w_log_w * LN_2, queries < T)
