"""The backward kernels behind `pointwise_triton.attend`. Shapes: B batch, H heads, T queries, S keys, D head size.

Both compute the weights again, dropout included. `backward_dq` holds a block of queries and visits blocks of keys;
`backward_dkdv` holds a block of keys and visits blocks of queries. Blocks are skipped as in the forward pass, and
arguments are named as there.
"""

# Triton compiles these functions; their arguments are pointers and tl.tensor, which mypy cannot check.
# mypy: allow-untyped-defs, allow-incomplete-defs

import triton
import triton.language as tl

from relumt.attention.kernels.pointwise_triton_forward import (
    FLOAT32_PRODUCTS,
    LN_2,
    UNSPECIALIZED,
    clips_late,
    diagonal_start,
    exponent_of,
    finite_log2,
    load_key_mask,
    load_per_query,
    pointwise_weights,
    raise_to,
    round_positive_part,
    saturate,
    scales_late,
    weighs_zeros,
)
from relumt.attention.kernels.triton_common import (
    ON_NVIDIA,
    dropout_mask_tile,
    load_key_bounds,
    load_seed,
    load_tile,
    store_tile,
)


@triton.jit
def round_gradients(x, dtype: tl.constexpr):
    """Round gradients to `dtype`."""
    if ON_NVIDIA and dtype == tl.bfloat16:  # else LLVM rounds before it sets some to 0: one instruction for each
        return tl.inline_asm_elementwise(
            "cvt.rn.bf16x2.f32 $0, $2, $1;", "=r,r,r", [x], dtype=tl.bfloat16, is_pure=True, pack=2
        )
    else:
        return x.to(dtype)


@triton.jit
def load_row_gradient(X, bh, queries, T, dropout_p):
    """Load the gradients of a row sum, divided by dropout's scale, which gradients are multiplied by later."""
    return load_per_query(X, T, 1, bh, queries, T) * (1 - dropout_p)


@triton.jit
def _tile_gradients(
    products, grad_weights, query_side, keys, T, S, kept, ACTIVATION: tl.constexpr, ON_DIAGONAL: tl.constexpr,
    ROW_SUMS: tl.constexpr,
):  # fmt: skip
    """Return a tile's weights after dropout and the gradient of its products q·k.

    `grad_weights` is the gradient of the weights after dropout; `kept` is None without dropout. Kept weights are not
    scaled. `factor`, of the scores, and `gradient_factor` are left out if they are None. If `clips_late`, negative
    weights remain.
    """
    queries, factor, gradient_factor, bias, row_gradients = query_side
    grad_weight_sum, grad_w_log_w = row_gradients
    CLIPS_LATE: tl.constexpr = clips_late(bias, ACTIVATION, ROW_SUMS)
    weights = pointwise_weights(
        products, None if CLIPS_LATE else factor, bias, queries, keys, T, S, "identity" if CLIPS_LATE else ACTIVATION,
        ON_DIAGONAL,
    )  # fmt: skip
    EXPONENT: tl.constexpr = exponent_of(ACTIVATION)
    slope = None
    if EXPONENT > 1:  # d(r^n)/dr = n r^(n - 1); gradient_factor has the n
        slope = raise_to(weights, EXPONENT - 1)
        weights *= slope
    dropped_weights = weights
    if kept is not None:
        dropped_weights = tl.where(kept, weights, 0.0)
        grad_weights = tl.where(kept, grad_weights, 0.0)
    if ROW_SUMS == 1:  # of the weights before dropout
        grad_weights += grad_weight_sum
    elif ROW_SUMS == 2:  # d(w log w)/dw = 1 + log w
        grad_weights += grad_weight_sum + grad_w_log_w + grad_w_log_w * LN_2 * finite_log2(weights)
    if ACTIVATION == "sigmoid":
        grad_scores = grad_weights * (weights * (1 - weights))
    elif EXPONENT > 1:
        grad_scores = grad_weights * slope
    else:
        grad_scores = tl.where(weights > 0, grad_weights, 0.0)
    if gradient_factor is not None:
        grad_scores *= gradient_factor
    if CLIPS_LATE and factor is not None:
        dropped_weights *= factor
    return dropped_weights, grad_scores


@triton.jit
def _add_keys(
    grad_q, tiles, query_side, keys_and_values, sentence, dropout, start, stop, dims, D: tl.constexpr,
    ACTIVATION: tl.constexpr, ON_DIAGONAL: tl.constexpr, ROW_SUMS: tl.constexpr, DROPOUT: tl.constexpr,
    BLOCK_S: tl.constexpr,
):  # fmt: skip
    """Add the keys from `start` to `stop` to q's gradient; what `query_side` has is [BLOCK_T, 1]."""
    q, grad_out = tiles
    K, k_s, k_d, V, v_s, v_d, KeyMask = keys_and_values
    b, bh, T, S = sentence
    dropout_p, seed = dropout
    for first in range(start, stop, BLOCK_S):
        keys = first + tl.arange(0, BLOCK_S)
        key_mask = load_key_mask(KeyMask, b, keys, S)
        k = load_tile(K, k_s, k_d, keys, key_mask, dims, D)
        v = load_tile(V, v_s, v_d, keys, key_mask, dims, D)
        products = tl.dot(q, tl.trans(k), input_precision=FLOAT32_PRODUCTS)  # [BLOCK_T, BLOCK_S]
        grad_weights = tl.dot(grad_out, tl.trans(v), input_precision=FLOAT32_PRODUCTS)
        kept = None
        if DROPOUT:
            first_query = tl.program_id(1) * q.shape[0]
            kept = dropout_mask_tile(first_query, first, bh, T, dropout_p, seed, q.shape[0], BLOCK_S)
        _, grad_products = _tile_gradients(
            products, grad_weights, query_side, keys[None], T, S, kept, ACTIVATION, ON_DIAGONAL, ROW_SUMS
        )
        grad_q += tl.dot(round_gradients(grad_products, k.dtype), k, input_precision=FLOAT32_PRODUCTS)
    return grad_q


@triton.jit(do_not_specialize=UNSPECIALIZED)
def backward_dq(
    Q, q_b, q_h, q_t, q_d, K, k_b, k_h, k_s, k_d, V, v_b, v_h, v_s, v_d, KeyMask, KeyBounds,
    Factor, f_b, f_t, Bias, b_b, b_t, H, T, S, dropout_p, Seed,
    GradOut, g_b, g_h, g_t, g_d, GradWeightSum, GradWLogW, GradQ, gq_b, gq_h, gq_t, gq_d,
    D: tl.constexpr, BLOCK_D: tl.constexpr, ACTIVATION: tl.constexpr, CAUSAL: tl.constexpr, ROW_SUMS: tl.constexpr,
    DROPOUT: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_S: tl.constexpr,
):  # fmt: skip
    """Compute q's gradient for a block of queries of one head."""
    bh = tl.program_id(0)
    b, h = bh // H, bh % H
    queries = tl.program_id(1) * BLOCK_T + tl.arange(0, BLOCK_T)
    dims = tl.arange(0, BLOCK_D)
    q = load_tile(Q + b.to(tl.int64) * q_b + h * q_h, q_t, q_d, queries, queries < T, dims, D)
    grad_out = load_tile(GradOut + b.to(tl.int64) * g_b + h * g_h, g_t, g_d, queries, queries < T, dims, D)
    query_column = queries[:, None]
    factor, bias = load_per_query(Factor, f_b, f_t, b, query_column, T), None
    if Bias is not None:
        bias = load_per_query(Bias, b_b, b_t, b, query_column, T)
    seed, gradient_scale, gradient_factor = load_seed(Seed), 1 / (1 - dropout_p), factor * exponent_of(ACTIVATION)
    SCALES_LATE: tl.constexpr = V.dtype.element_ty != tl.float16  # see `scales_late`
    if SCALES_LATE:
        gradient_scale, gradient_factor = gradient_scale * gradient_factor, None
    if scales_late(Bias, V.dtype.element_ty, ACTIVATION, ROW_SUMS):
        factor, bias = None, None
    row_gradients = (None, None)
    if ROW_SUMS:
        row_gradients = (load_row_gradient(GradWeightSum, bh, query_column, T, dropout_p), None)
    if ROW_SUMS == 2:
        row_gradients = (row_gradients[0], load_row_gradient(GradWLogW, bh, query_column, T, dropout_p))
    K += b.to(tl.int64) * k_b + h * k_h
    V += b.to(tl.int64) * v_b + h * v_h
    grad_q = tl.zeros([BLOCK_T, BLOCK_D], tl.float32)
    query_side = (query_column, factor, gradient_factor, bias, row_gradients)
    keys_and_values = (K, k_s, k_d, V, v_s, v_d, KeyMask)
    sentence, dropout = (b, bh, T, S), (dropout_p, seed)
    start, stop = load_key_bounds(KeyBounds, b, S)
    start = start // BLOCK_S * BLOCK_S
    diagonal = stop if not CAUSAL else diagonal_start(start, stop, T, S, BLOCK_T, BLOCK_S)
    grad_q = _add_keys(
        grad_q, (q, grad_out), query_side, keys_and_values, sentence, dropout, start, diagonal, dims, D, ACTIVATION,
        False, ROW_SUMS, DROPOUT, BLOCK_S,
    )  # fmt: skip
    if CAUSAL:
        stop = tl.minimum(stop, (tl.program_id(1) + 1) * BLOCK_T + S - T)
        grad_q = _add_keys(
            grad_q, (q, grad_out), query_side, keys_and_values, sentence, dropout, diagonal, stop, dims, D, ACTIVATION,
            True, ROW_SUMS, DROPOUT, BLOCK_S,
        )  # fmt: skip
    if SCALES_LATE or DROPOUT:
        grad_q *= gradient_scale
    store_tile(GradQ + b.to(tl.int64) * gq_b + h * gq_h, grad_q, gq_t, gq_d, queries, queries < T, dims, D)


@triton.jit
def _add_queries(
    gradients, key_side, queries_of_head, sentence, dropout, start, stop, dims, D: tl.constexpr,
    ACTIVATION: tl.constexpr, ON_DIAGONAL: tl.constexpr, ROW_SUMS: tl.constexpr, DROPOUT: tl.constexpr,
    GRADIENTS_LATE: tl.constexpr, BLOCK_T: tl.constexpr,
):  # fmt: skip
    """Add the queries from `start` to `stop` to the gradients of k and v.

    Tiles are [keys, queries]: as the left operand of the products below they need not be transposed through shared
    memory.
    """
    grad_k, grad_v = gradients
    keys, k, v = key_side
    Q, q_t, q_d, GradOut, g_t, g_d, Factor, f_b, f_t, Bias, b_b, b_t, GradWeightSum, GradWLogW = queries_of_head
    b, bh, T, S = sentence
    dropout_p, seed = dropout
    for first in range(start, stop, BLOCK_T):
        queries = first + tl.arange(0, BLOCK_T)
        q = load_tile(Q, q_t, q_d, queries, queries < T, dims, D)
        grad_out = load_tile(GradOut, g_t, g_d, queries, queries < T, dims, D)
        query_row = queries[None]
        factor, bias = load_per_query(Factor, f_b, f_t, b, query_row, T), None
        if Bias is not None:
            bias = load_per_query(Bias, b_b, b_t, b, query_row, T)
        CLIPS_LATE: tl.constexpr = clips_late(Bias, ACTIVATION, ROW_SUMS)
        gradient_factor = factor * exponent_of(ACTIVATION)
        if GRADIENTS_LATE:
            factor, gradient_factor = None if CLIPS_LATE else factor, None
        row_gradients = (None, None)
        if ROW_SUMS:
            row_gradients = (load_row_gradient(GradWeightSum, bh, query_row, T, dropout_p), None)
        if ROW_SUMS == 2:
            row_gradients = (row_gradients[0], load_row_gradient(GradWLogW, bh, query_row, T, dropout_p))
        products = tl.dot(k, tl.trans(q), input_precision=FLOAT32_PRODUCTS)  # [BLOCK_S, BLOCK_T]
        grad_weights = tl.dot(v, tl.trans(grad_out), input_precision=FLOAT32_PRODUCTS)
        kept = None
        if DROPOUT:
            first_key = tl.program_id(1) * k.shape[0]
            kept = dropout_mask_tile(first, first_key, bh, T, dropout_p, seed, BLOCK_T, k.shape[0]).trans()
        query_side = (query_row, factor, gradient_factor, bias, row_gradients)
        dropped_weights, grad_products = _tile_gradients(
            products, grad_weights, query_side, keys[:, None], T, S, kept, ACTIVATION, ON_DIAGONAL, ROW_SUMS
        )
        if CLIPS_LATE:
            rounded_weights = round_positive_part(dropped_weights, grad_out.dtype)
        else:
            rounded_weights = saturate(dropped_weights, grad_out.dtype)
        grad_v += tl.dot(rounded_weights, grad_out, input_precision=FLOAT32_PRODUCTS)
        grad_k += tl.dot(round_gradients(grad_products, q.dtype), q, input_precision=FLOAT32_PRODUCTS)
    return grad_k, grad_v


@triton.jit(do_not_specialize=UNSPECIALIZED)
def backward_dkdv(
    Q, q_b, q_h, q_t, q_d, K, k_b, k_h, k_s, k_d, V, v_b, v_h, v_s, v_d, KeyMask, KeyBounds,
    Factor, f_b, f_t, Bias, b_b, b_t, H, T, S, dropout_p, Seed,
    GradOut, g_b, g_h, g_t, g_d, GradWeightSum, GradWLogW, GradK, gk_b, gk_h, gk_s, gk_d, GradV, gv_b, gv_h, gv_s, gv_d,
    D: tl.constexpr, BLOCK_D: tl.constexpr, ACTIVATION: tl.constexpr, CAUSAL: tl.constexpr, ROW_SUMS: tl.constexpr,
    DROPOUT: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_S: tl.constexpr,
):  # fmt: skip
    """Compute the gradients of k and v for a block of keys of one head."""
    bh = tl.program_id(0)
    b, h = bh // H, bh % H
    keys = tl.program_id(1) * BLOCK_S + tl.arange(0, BLOCK_S)
    key_mask = load_key_mask(KeyMask, b, keys, S)
    dims = tl.arange(0, BLOCK_D)
    k = load_tile(K + b.to(tl.int64) * k_b + h * k_h, k_s, k_d, keys, key_mask, dims, D)
    v = load_tile(V + b.to(tl.int64) * v_b + h * v_h, v_s, v_d, keys, key_mask, dims, D)
    Q += b.to(tl.int64) * q_b + h * q_h
    GradOut += b.to(tl.int64) * g_b + h * g_h
    grad_k, grad_v = tl.zeros([BLOCK_S, BLOCK_D], tl.float32), tl.zeros([BLOCK_S, BLOCK_D], tl.float32)
    first_real, after_last_real = load_key_bounds(KeyBounds, b, S)
    seed, stop = load_seed(Seed), T
    if (tl.program_id(1) * BLOCK_S >= after_last_real) | ((tl.program_id(1) + 1) * BLOCK_S <= first_real):
        stop = 0  # all of this program's keys are padding: write zeros
    GRADIENTS_LATE: tl.constexpr = V.dtype.element_ty != tl.float16 and f_t is None  # see `scales_late`
    gradients, key_side = (grad_k, grad_v), (keys, k, v)
    queries_of_head = (Q, q_t, q_d, GradOut, g_t, g_d, Factor, f_b, f_t, Bias, b_b, b_t, GradWeightSum, GradWLogW)
    sentence, dropout = (b, bh, T, S), (dropout_p, seed)
    after_diagonal = 0
    if CAUSAL:
        # The first query that sees any of these keys, and the first that sees all of them, in whole blocks.
        start = tl.maximum(tl.program_id(1) * BLOCK_S - (S - T), 0) // BLOCK_T * BLOCK_T
        after_diagonal = tl.cdiv(tl.maximum((tl.program_id(1) + 1) * BLOCK_S - 1 - (S - T), 0), BLOCK_T) * BLOCK_T
        gradients = _add_queries(
            gradients, key_side, queries_of_head, sentence, dropout, start, tl.minimum(after_diagonal, stop), dims, D,
            ACTIVATION, True, ROW_SUMS, DROPOUT, GRADIENTS_LATE, BLOCK_T,
        )  # fmt: skip
    grad_k, grad_v = _add_queries(
        gradients, key_side, queries_of_head, sentence, dropout, after_diagonal, stop, dims, D, ACTIVATION, False,
        ROW_SUMS, DROPOUT, GRADIENTS_LATE, BLOCK_T,
    )  # fmt: skip
    scale_k, scale_v = 1 / (1 - dropout_p), 1 / (1 - dropout_p)
    if GRADIENTS_LATE:
        factor = load_per_query(Factor, f_b, None, b, None, T)
        scale_k *= factor * exponent_of(ACTIVATION)
        if clips_late(Bias, ACTIVATION, ROW_SUMS):
            scale_v *= factor
    grad_k *= scale_k
    grad_v *= scale_v
    if weighs_zeros(Bias, ACTIVATION):
        grad_k = tl.where(key_mask[:, None], grad_k, 0.0)
        grad_v = tl.where(key_mask[:, None], grad_v, 0.0)
    store_tile(GradK + b.to(tl.int64) * gk_b + h * gk_h, grad_k, gk_s, gk_d, keys, keys < S, dims, D)
    store_tile(GradV + b.to(tl.int64) * gv_b + h * gv_h, grad_v, gv_s, gv_d, keys, keys < S, dims, D)
