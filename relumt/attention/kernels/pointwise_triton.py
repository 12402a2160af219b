"""The kernels behind `pointwise.attend`. Shapes: B H T S D.

Three kernels, each along blocks of the other side: values (a program holds queries), q's gradient (likewise), k's and
v's (it holds keys). Blocks of keys that are padding for the whole sentence, or in the future of a whole block of
queries, are skipped. Keys that are not real are read as 0, so that ReLU needs no mask but where a block lies on the
diagonal of a causal one. Products are of the inputs' type and added up in float32; of float32 inputs they are exact,
not TF32. Under float16 a weight is held at 65,504, the largest that the product with v can take.
"""

import os

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

from relumt.attention.kernels.tiles import first_and_last, kept_block, tile

TINY = tl.constexpr(1.1754943508222875e-38)
"""The smallest normal float32: what log is taken of where a weight is 0."""

LARGEST_HALF = tl.constexpr(65504.0)
FAST_LOG2 = tl.constexpr(os.environ.get("TRITON_INTERPRET") != "1" and torch.version.hip is None)
LN_2 = tl.constexpr(0.6931471805599453)

VARYING = ["seed", "T", "S", "f_b", "f_t", "b_b", "b_t"]
"""Arguments whose divisibility is not worth a kernel of its own."""


@triton.jit
def _real(Keys, b, keys, S):
    """Which of these keys there are and are no padding."""
    if Keys is None:
        return keys < S
    else:
        return tl.load(Keys + b * S + keys, keys < S, 0) != 0


@triton.jit
def _weights(
    products, factor, bias, real, queries, keys, T, S, ACTIVATION: tl.constexpr, DIAGONAL: tl.constexpr
):  # fmt: skip
    """Weights of products q·k, 0 where nothing is seen; keys that are not real have been read as 0.

    Queries × keys or the other way round: what is of queries or of keys has the shape to broadcast.
    """
    scores = products * factor
    if bias is not None:
        scores += bias
    if ACTIVATION == "relu":
        weights = tl.maximum(scores, 0.0, propagate_nan=tl.PropagateNan.ALL)
    else:
        weights = 1 / (1 + tl.exp(-scores))
    if DIAGONAL:
        weights = tl.where(keys <= queries + S - T, weights, 0.0)
    if ACTIVATION != "relu" or bias is not None:  # else a key read as 0 has no weight anyway
        weights = tl.where(real, weights, 0.0)
    return weights


@triton.jit
def _log2(weights):
    """0 has the logarithm of the smallest normal number; what it is multiplied with is 0."""
    if FAST_LOG2:  # one instruction of the GPU's, exact to 22 bits, instead of twenty
        return libdevice.fast_log2f(tl.maximum(weights, TINY))
    else:
        return tl.log2(tl.maximum(weights, TINY))


@triton.jit
def _per_row(X, s_b, s_t, b, queries, T):
    """A number for each query, of the shape of `queries`."""
    return tl.load(X + b * s_b + queries * s_t, queries < T, 0.0)


@triton.jit
def _mix(
    mixed, total, w_log_w, q, factor, bias, queries, K, k_s, k_d, V, v_s, v_d, Keys, b, bh, T, S, dropout, seed,
    start, stop, dims, D: tl.constexpr, ACTIVATION: tl.constexpr, DIAGONAL: tl.constexpr, STATISTICS: tl.constexpr,
    DROPOUT: tl.constexpr, BLOCK_S: tl.constexpr,
):  # fmt: skip
    """What a block of queries [BLOCK_T, 1] gets of the keys from `start` to `stop`, added to what it has."""
    for first in range(start, stop, BLOCK_S):
        keys = first + tl.arange(0, BLOCK_S)
        real = _real(Keys, b, keys, S)
        k = tile(K, k_s, k_d, keys, real, dims, D)
        v = tile(V, v_s, v_d, keys, real, dims, D)
        products = tl.dot(q, tl.trans(k), input_precision="ieee")
        weights = _weights(products, factor, bias, real[None], queries, keys[None], T, S, ACTIVATION, DIAGONAL)
        if STATISTICS:
            total += tl.sum(weights, 1)
            w_log_w += tl.sum(weights * _log2(weights), 1)
        if DROPOUT:
            kept = kept_block(tl.program_id(1) * q.shape[0], first, bh, T, S, dropout, seed, q.shape[0], BLOCK_S)
            weights = tl.where(kept, weights * (1 / (1 - dropout)), 0.0)
        if v.dtype == tl.float16:
            weights = tl.minimum(weights, LARGEST_HALF, propagate_nan=tl.PropagateNan.ALL)
        mixed += tl.dot(weights.to(v.dtype), v, input_precision="ieee")
    return mixed, total, w_log_w


@triton.jit(do_not_specialize=VARYING)
def forward(
    Q, q_b, q_h, q_t, q_d, K, k_b, k_h, k_s, k_d, V, v_b, v_h, v_s, v_d, Keys, Bounds,
    Factor, f_b, f_t, Bias, b_b, b_t, H, T, S, dropout, seed,
    Mixed, m_b, m_h, m_t, m_d, Total, SLogS,
    D: tl.constexpr, BLOCK_D: tl.constexpr, ACTIVATION: tl.constexpr, CAUSAL: tl.constexpr, STATISTICS: tl.constexpr,
    DROPOUT: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_S: tl.constexpr,
):  # fmt: skip
    """A block of queries of one head, along the keys that any of it sees."""
    bh = tl.program_id(0)
    b, h = bh // H, bh % H
    queries = tl.program_id(1) * BLOCK_T + tl.arange(0, BLOCK_T)
    dims = tl.arange(0, BLOCK_D)
    q = tile(Q + b.to(tl.int64) * q_b + h * q_h, q_t, q_d, queries, queries < T, dims, D)
    column = queries[:, None]
    factor, bias = _per_row(Factor, f_b, f_t, b, column, T), None
    if Bias is not None:
        bias = _per_row(Bias, b_b, b_t, b, column, T)
    of_k, of_v = K + b.to(tl.int64) * k_b + h * k_h, V + b.to(tl.int64) * v_b + h * v_h
    mixed = tl.zeros([BLOCK_T, BLOCK_D], tl.float32)
    total, w_log_w = tl.zeros([BLOCK_T], tl.float32), tl.zeros([BLOCK_T], tl.float32)
    start, stop = first_and_last(Bounds, b, S)
    start = start // BLOCK_S * BLOCK_S
    common = stop if not CAUSAL else _seen_by_all(start, stop, T, S, BLOCK_T, BLOCK_S)
    mixed, total, w_log_w = _mix(
        mixed, total, w_log_w, q, factor, bias, column, of_k, k_s, k_d, of_v, v_s, v_d, Keys, b, bh, T, S, dropout,
        seed, start, common, dims, D, ACTIVATION, False, STATISTICS, DROPOUT, BLOCK_S,
    )  # fmt: skip
    if CAUSAL:
        stop = tl.minimum(stop, (tl.program_id(1) + 1) * BLOCK_T + S - T)
        mixed, total, w_log_w = _mix(
            mixed, total, w_log_w, q, factor, bias, column, of_k, k_s, k_d, of_v, v_s, v_d, Keys, b, bh, T, S, dropout,
            seed, common, stop, dims, D, ACTIVATION, True, STATISTICS, DROPOUT, BLOCK_S,
        )  # fmt: skip
    if Mixed.dtype.element_ty == tl.float16:
        mixed = tl.clamp(mixed, -LARGEST_HALF, LARGEST_HALF, propagate_nan=tl.PropagateNan.ALL)
    out = Mixed + b.to(tl.int64) * m_b + h * m_h + queries[:, None] * m_t + dims[None] * m_d
    tl.store(out, mixed.to(Mixed.dtype.element_ty), (queries[:, None] < T) & (dims[None] < D))
    if STATISTICS:
        tl.store(Total + bh * T + queries, total, queries < T)
        tl.store(SLogS + bh * T + queries, w_log_w * LN_2, queries < T)


@triton.jit
def _seen_by_all(start, stop, T, S, BLOCK_T: tl.constexpr, BLOCK_S: tl.constexpr):
    """Up to which key this program's queries all see all keys, in whole blocks from `start`; causal."""
    seen = tl.minimum(stop, tl.program_id(1) * BLOCK_T + S - T + 1)
    return tl.maximum(start, seen // BLOCK_S * BLOCK_S)


@triton.jit
def _gradients(
    products, of_weights, factor, bias, of_total, of_s_log_s, real, queries, keys, T, S, kept, scale,
    ACTIVATION: tl.constexpr, DIAGONAL: tl.constexpr, STATISTICS: tl.constexpr, HALF: tl.constexpr,
):  # fmt: skip
    """Of a block of pairs, either way round: the weights after dropout, and the gradient of the products q·k."""
    weights = _weights(products, factor, bias, real, queries, keys, T, S, ACTIVATION, DIAGONAL)
    dropped = weights
    if kept is not None:
        dropped = tl.where(kept, weights * scale, 0.0)
        of_weights = tl.where(kept, of_weights * scale, 0.0)
    if STATISTICS:
        of_weights += of_total + of_s_log_s + of_s_log_s * LN_2 * _log2(weights)
    of_scores = tl.where(weights > 0, of_weights, 0.0)
    if ACTIVATION == "sigmoid":
        of_scores *= weights * (1 - weights)
    if HALF:
        dropped = tl.minimum(dropped, LARGEST_HALF, propagate_nan=tl.PropagateNan.ALL)
    return dropped, of_scores * factor


@triton.jit
def _to_queries(
    grad_q, q, grad, factor, bias, of_total, of_s_log_s, queries, K, k_s, k_d, V, v_s, v_d, Keys, b, bh, T, S, dropout,
    seed, start, stop, dims, D: tl.constexpr, ACTIVATION: tl.constexpr, DIAGONAL: tl.constexpr,
    STATISTICS: tl.constexpr, DROPOUT: tl.constexpr, BLOCK_S: tl.constexpr,
):  # fmt: skip
    """What q's gradient gets of the keys from `start` to `stop`, added to what it has; queries are [BLOCK_T, 1]."""
    for first in range(start, stop, BLOCK_S):
        keys = first + tl.arange(0, BLOCK_S)
        real = _real(Keys, b, keys, S)
        k = tile(K, k_s, k_d, keys, real, dims, D)
        v = tile(V, v_s, v_d, keys, real, dims, D)
        products = tl.dot(q, tl.trans(k), input_precision="ieee")
        of_weights = tl.dot(grad, tl.trans(v), input_precision="ieee")
        kept = None
        if DROPOUT:
            kept = kept_block(tl.program_id(1) * q.shape[0], first, bh, T, S, dropout, seed, q.shape[0], BLOCK_S)
        _, of_products = _gradients(
            products, of_weights, factor, bias, of_total, of_s_log_s, real[None], queries, keys[None], T, S, kept,
            1 / (1 - dropout), ACTIVATION, DIAGONAL, STATISTICS, False,
        )  # fmt: skip
        grad_q += tl.dot(of_products.to(k.dtype), k, input_precision="ieee")
    return grad_q


@triton.jit(do_not_specialize=VARYING)
def backward_of_queries(
    Q, q_b, q_h, q_t, q_d, K, k_b, k_h, k_s, k_d, V, v_b, v_h, v_s, v_d, Keys, Bounds,
    Factor, f_b, f_t, Bias, b_b, b_t, H, T, S, dropout, seed,
    Grad, g_b, g_h, g_t, g_d, OfTotal, OfSLogS, GradQ, gq_b, gq_h, gq_t, gq_d,
    D: tl.constexpr, BLOCK_D: tl.constexpr, ACTIVATION: tl.constexpr, CAUSAL: tl.constexpr, STATISTICS: tl.constexpr,
    DROPOUT: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_S: tl.constexpr,
):  # fmt: skip
    """q's gradient: a block of queries of one head, along the keys that any of it sees."""
    bh = tl.program_id(0)
    b, h = bh // H, bh % H
    queries = tl.program_id(1) * BLOCK_T + tl.arange(0, BLOCK_T)
    dims = tl.arange(0, BLOCK_D)
    q = tile(Q + b.to(tl.int64) * q_b + h * q_h, q_t, q_d, queries, queries < T, dims, D)
    grad = tile(Grad + b.to(tl.int64) * g_b + h * g_h, g_t, g_d, queries, queries < T, dims, D)
    column = queries[:, None]
    factor, bias = _per_row(Factor, f_b, f_t, b, column, T), None
    if Bias is not None:
        bias = _per_row(Bias, b_b, b_t, b, column, T)
    of_total, of_s_log_s = None, None
    if STATISTICS:
        of_total, of_s_log_s = _per_row(OfTotal, T, 1, bh, column, T), _per_row(OfSLogS, T, 1, bh, column, T)
    of_k, of_v = K + b.to(tl.int64) * k_b + h * k_h, V + b.to(tl.int64) * v_b + h * v_h
    grad_q = tl.zeros([BLOCK_T, BLOCK_D], tl.float32)
    start, stop = first_and_last(Bounds, b, S)
    start = start // BLOCK_S * BLOCK_S
    common = stop if not CAUSAL else _seen_by_all(start, stop, T, S, BLOCK_T, BLOCK_S)
    grad_q = _to_queries(
        grad_q, q, grad, factor, bias, of_total, of_s_log_s, column, of_k, k_s, k_d, of_v, v_s, v_d, Keys, b, bh, T, S,
        dropout, seed, start, common, dims, D, ACTIVATION, False, STATISTICS, DROPOUT, BLOCK_S,
    )  # fmt: skip
    if CAUSAL:
        stop = tl.minimum(stop, (tl.program_id(1) + 1) * BLOCK_T + S - T)
        grad_q = _to_queries(
            grad_q, q, grad, factor, bias, of_total, of_s_log_s, column, of_k, k_s, k_d, of_v, v_s, v_d, Keys, b, bh, T,
            S, dropout, seed, common, stop, dims, D, ACTIVATION, True, STATISTICS, DROPOUT, BLOCK_S,
        )  # fmt: skip
    out = GradQ + b.to(tl.int64) * gq_b + h * gq_h + queries[:, None] * gq_t + dims[None] * gq_d
    tl.store(out, grad_q.to(GradQ.dtype.element_ty), (queries[:, None] < T) & (dims[None] < D))


@triton.jit
def _to_keys(
    grad_k, grad_v, k, v, real, keys, Q, q_t, q_d, Grad, g_t, g_d, Factor, f_b, f_t, Bias, b_b, b_t, OfTotal, OfSLogS,
    b, bh, T, S, dropout, seed, start, stop, dims, D: tl.constexpr, ACTIVATION: tl.constexpr, DIAGONAL: tl.constexpr,
    STATISTICS: tl.constexpr, DROPOUT: tl.constexpr, BLOCK_T: tl.constexpr,
):  # fmt: skip
    """What k's and v's gradients get of the queries from `start` to `stop`, added to what they have.

    Blocks of pairs are keys × queries, so that they are the left of the products, as they lie in registers.
    """
    for first in range(start, stop, BLOCK_T):
        queries = first + tl.arange(0, BLOCK_T)
        q = tile(Q, q_t, q_d, queries, queries < T, dims, D)
        grad = tile(Grad, g_t, g_d, queries, queries < T, dims, D)
        row = queries[None]
        factor, bias = _per_row(Factor, f_b, f_t, b, row, T), None
        if Bias is not None:
            bias = _per_row(Bias, b_b, b_t, b, row, T)
        of_total, of_s_log_s = None, None
        if STATISTICS:
            of_total, of_s_log_s = _per_row(OfTotal, T, 1, bh, row, T), _per_row(OfSLogS, T, 1, bh, row, T)
        products = tl.dot(k, tl.trans(q), input_precision="ieee")
        of_weights = tl.dot(v, tl.trans(grad), input_precision="ieee")
        kept = None
        if DROPOUT:
            first_key = tl.program_id(1) * k.shape[0]
            kept = kept_block(first, first_key, bh, T, S, dropout, seed, BLOCK_T, k.shape[0]).trans()
        dropped, of_products = _gradients(
            products, of_weights, factor, bias, of_total, of_s_log_s, real[:, None], row, keys[:, None], T, S, kept,
            1 / (1 - dropout), ACTIVATION, DIAGONAL, STATISTICS, v.dtype == tl.float16,
        )  # fmt: skip
        grad_v += tl.dot(dropped.to(grad.dtype), grad, input_precision="ieee")
        grad_k += tl.dot(of_products.to(q.dtype), q, input_precision="ieee")
    return grad_k, grad_v


@triton.jit(do_not_specialize=VARYING)
def backward_of_keys(
    Q, q_b, q_h, q_t, q_d, K, k_b, k_h, k_s, k_d, V, v_b, v_h, v_s, v_d, Keys, Bounds,
    Factor, f_b, f_t, Bias, b_b, b_t, H, T, S, dropout, seed,
    Grad, g_b, g_h, g_t, g_d, OfTotal, OfSLogS, GradK, gk_b, gk_h, gk_s, gk_d, GradV, gv_b, gv_h, gv_s, gv_d,
    D: tl.constexpr, BLOCK_D: tl.constexpr, ACTIVATION: tl.constexpr, CAUSAL: tl.constexpr, STATISTICS: tl.constexpr,
    DROPOUT: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_S: tl.constexpr,
):  # fmt: skip
    """k's and v's gradients: a block of keys of one head, along the queries that see any of it."""
    bh = tl.program_id(0)
    b, h = bh // H, bh % H
    keys = tl.program_id(1) * BLOCK_S + tl.arange(0, BLOCK_S)
    real = _real(Keys, b, keys, S)
    dims = tl.arange(0, BLOCK_D)
    k = tile(K + b.to(tl.int64) * k_b + h * k_h, k_s, k_d, keys, real, dims, D)
    v = tile(V + b.to(tl.int64) * v_b + h * v_h, v_s, v_d, keys, real, dims, D)
    of_q, of_grad = Q + b.to(tl.int64) * q_b + h * q_h, Grad + b.to(tl.int64) * g_b + h * g_h
    grad_k, grad_v = tl.zeros([BLOCK_S, BLOCK_D], tl.float32), tl.zeros([BLOCK_S, BLOCK_D], tl.float32)
    first_real, after = first_and_last(Bounds, b, S)
    stop = T
    if (tl.program_id(1) * BLOCK_S >= after) | ((tl.program_id(1) + 1) * BLOCK_S <= first_real):
        stop = 0
    common = 0
    if CAUSAL:
        start = tl.maximum(tl.program_id(1) * BLOCK_S - (S - T), 0) // BLOCK_T * BLOCK_T
        common = tl.cdiv(tl.maximum((tl.program_id(1) + 1) * BLOCK_S - 1 - (S - T), 0), BLOCK_T) * BLOCK_T
        grad_k, grad_v = _to_keys(
            grad_k, grad_v, k, v, real, keys, of_q, q_t, q_d, of_grad, g_t, g_d, Factor, f_b, f_t, Bias, b_b, b_t,
            OfTotal, OfSLogS, b, bh, T, S, dropout, seed, start, tl.minimum(common, stop), dims, D, ACTIVATION, True,
            STATISTICS, DROPOUT, BLOCK_T,
        )  # fmt: skip
    grad_k, grad_v = _to_keys(
        grad_k, grad_v, k, v, real, keys, of_q, q_t, q_d, of_grad, g_t, g_d, Factor, f_b, f_t, Bias, b_b, b_t,
        OfTotal, OfSLogS, b, bh, T, S, dropout, seed, common, stop, dims, D, ACTIVATION, False,
        STATISTICS, DROPOUT, BLOCK_T,
    )  # fmt: skip
    within = (keys[:, None] < S) & (dims[None] < D)
    out_k = GradK + b.to(tl.int64) * gk_b + h * gk_h + keys[:, None] * gk_s + dims[None] * gk_d
    out_v = GradV + b.to(tl.int64) * gv_b + h * gv_h + keys[:, None] * gv_s + dims[None] * gv_d
    tl.store(out_k, grad_k.to(GradK.dtype.element_ty), within)
    tl.store(out_v, grad_v.to(GradV.dtype.element_ty), within)
