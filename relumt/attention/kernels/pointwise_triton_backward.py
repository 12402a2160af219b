"""The backward kernels behind `pointwise_triton`. Shapes: B batch, H heads, T queries, S keys, D head size.

Both compute the weights again, dropout included. `backward_dq` holds a block of queries and visits blocks of keys;
`backward_dkdv` holds a block of keys and visits blocks of queries. Blocks are skipped as in the forward pass, and
arguments are those of the forward kernel; gradients are `Strided`, those of row sums `RowSums`.
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
    finite_log2,
    load_key_mask,
    load_per_query,
    pointwise_weights,
    raise_to,
    round_weights,
    scales_late,
    weighs_zeros,
)
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
    return tl.load(X + bh * T + queries, queries < T, 0.0) * (1 - dropout_p)


@triton.jit
def _tile_gradients(
    products, grad_weights, query_side, keys, T, S, kept, ON_DIAGONAL: tl.constexpr, CONFIG: tl.constexpr
):  # fmt: skip
    """Return a tile's weights after dropout and the gradient of its products q·k.

    `grad_weights` is the gradient of the weights after dropout; `kept` is None without dropout. Kept weights are not
    scaled. `factor`, of the scores, and `gradient_factor` are left out if they are None. If `clips_late`, negative
    weights remain.
    """
    queries, factor, gradient_factor, bias, row_gradients = query_side
    grad_weight_sum, grad_w_log_w = row_gradients
    score_factor = None if clips_late(CONFIG) else factor
    weights = pointwise_weights(products, score_factor, bias, (queries, keys, T, S), ON_DIAGONAL, CONFIG)
    slope = None
    if CONFIG.exponent > 1:  # d(r^n)/dr = n r^(n - 1); gradient_factor has the n
        slope = raise_to(weights, CONFIG.exponent - 1)
        weights *= slope
    dropped_weights = weights
    if kept is not None:
        dropped_weights = tl.where(kept, weights, 0.0)
        grad_weights = tl.where(kept, grad_weights, 0.0)
    if CONFIG.row_sums == 1:  # of the weights before dropout
        grad_weights += grad_weight_sum
    elif CONFIG.row_sums == 2:  # d(w log w)/dw = 1 + log w
        grad_weights += grad_weight_sum + grad_w_log_w + grad_w_log_w * LN_2 * finite_log2(weights)
    if CONFIG.activation == "sigmoid":
        grad_scores = grad_weights * (weights * (1 - weights))
    elif CONFIG.exponent > 1:
        grad_scores = grad_weights * slope
    else:
        grad_scores = tl.where(weights > 0, grad_weights, 0.0)
    if gradient_factor is not None:
        grad_scores *= gradient_factor
    if clips_late(CONFIG) and factor is not None:
        dropped_weights *= factor
    return dropped_weights, grad_scores


@triton.jit
def _add_keys(
    grad_q, tiles, query_side, key_side, sentence, dropout, start, stop, ON_DIAGONAL: tl.constexpr,
    CONFIG: tl.constexpr,
):  # fmt: skip
    """Add the keys from `start` to `stop` to q's gradient; what `query_side` has is [BLOCK_T, 1]."""
    q, grad_out = tiles
    K, V, padding = key_side
    b, bh, T, S = sentence
    dropout_p, seed = dropout
    for first in range(start, stop, CONFIG.block_s):
        keys = first + tl.arange(0, CONFIG.block_s)
        key_mask = load_key_mask(padding, b, keys, S)
        k, v = load_tile(K, keys, key_mask, CONFIG), load_tile(V, keys, key_mask, CONFIG)
        products = tl.dot(q, tl.trans(k), input_precision=FLOAT32_PRODUCTS)  # [BLOCK_T, BLOCK_S]
        grad_weights = tl.dot(grad_out, tl.trans(v), input_precision=FLOAT32_PRODUCTS)
        kept = None
        if CONFIG.has_dropout:
            first_query = tl.program_id(1) * CONFIG.block_t
            kept = dropout_mask_tile(first_query, first, bh, T, dropout_p, seed, CONFIG.block_t, CONFIG.block_s)
        _, grad_products = _tile_gradients(
            products, grad_weights, query_side, keys[None], T, S, kept, ON_DIAGONAL, CONFIG
        )
        grad_q += tl.dot(round_gradients(grad_products, k.dtype), k, input_precision=FLOAT32_PRODUCTS)
    return grad_q


@triton.jit(do_not_specialize=UNSPECIALIZED)
def backward_dq(
    Q, K, V, Factor, Bias, padding, dropout, H, T, S, GradOut, row_grads, GradQ, CONFIG: tl.constexpr
):  # fmt: skip
    """Compute q's gradient for a block of queries of one head."""
    bh = tl.program_id(0)
    b, h = bh // H, bh % H
    queries = tl.program_id(1) * CONFIG.block_t + tl.arange(0, CONFIG.block_t)
    query_column = queries[:, None]
    q = load_tile(find_head(Q, b, h), queries, queries < T, CONFIG)
    grad_out = load_tile(find_head(GradOut, b, h), queries, queries < T, CONFIG)
    factor, bias = (  # a tuple, because Triton packs no name that is None
        load_per_query(Factor, CONFIG.factor_shape, b, query_column, T),
        load_per_query(Bias, CONFIG.bias_shape, b, query_column, T) if CONFIG.has_bias else None,
    )
    gradient_scale, gradient_factor = 1 / (1 - dropout.p), factor * CONFIG.exponent
    SCALES_LATE: tl.constexpr = V.data.dtype.element_ty != tl.float16  # see `scales_late`
    if SCALES_LATE:
        gradient_scale, gradient_factor = gradient_scale * gradient_factor, None
    if scales_late(CONFIG, V.data.dtype.element_ty):
        factor, bias = None, None
    row_gradients = (
        load_row_gradient(row_grads.weight, bh, query_column, T, dropout.p) if CONFIG.row_sums else None,
        load_row_gradient(row_grads.w_log_w, bh, query_column, T, dropout.p) if CONFIG.row_sums == 2 else None,
    )
    query_side = (query_column, factor, gradient_factor, bias, row_gradients)
    key_side = (find_head(K, b, h), find_head(V, b, h), padding)
    sentence, seeded = (b, bh, T, S), (dropout.p, load_seed(dropout.seed))
    grad_q = zeros(CONFIG.block_t, CONFIG.block_d)
    start, stop = load_key_bounds(padding.bounds, b, S)
    start = start // CONFIG.block_s * CONFIG.block_s
    diagonal = diagonal_start(start, stop, T, S, CONFIG)
    grad_q = _add_keys(grad_q, (q, grad_out), query_side, key_side, sentence, seeded, start, diagonal, False, CONFIG)
    if CONFIG.is_causal:
        stop = tl.minimum(stop, (tl.program_id(1) + 1) * CONFIG.block_t + S - T)
        grad_q = _add_keys(grad_q, (q, grad_out), query_side, key_side, sentence, seeded, diagonal, stop, True, CONFIG)
    if SCALES_LATE or CONFIG.has_dropout:
        grad_q *= gradient_scale
    store_tile(find_head(GradQ, b, h), grad_q, queries, queries < T, CONFIG)


@triton.jit
def _add_queries(
    gradients, key_side, query_side, sentence, dropout, start, stop, ON_DIAGONAL: tl.constexpr,
    GRADIENTS_LATE: tl.constexpr, CONFIG: tl.constexpr,
):  # fmt: skip
    """Add the queries from `start` to `stop` to the gradients of k and v.

    Tiles are [keys, queries]: as the left operand of the products below they need not be transposed through shared
    memory.
    """
    grad_k, grad_v = gradients
    keys, k, v = key_side
    Q, GradOut, Factor, Bias, row_grads = query_side
    b, bh, T, S = sentence
    dropout_p, seed = dropout
    for first in range(start, stop, CONFIG.block_t):
        queries = first + tl.arange(0, CONFIG.block_t)
        query_row = queries[None]
        q = load_tile(Q, queries, queries < T, CONFIG)
        grad_out = load_tile(GradOut, queries, queries < T, CONFIG)
        factor, bias = (  # a tuple, because Triton packs no name that is None
            load_per_query(Factor, CONFIG.factor_shape, b, query_row, T),
            load_per_query(Bias, CONFIG.bias_shape, b, query_row, T) if CONFIG.has_bias else None,
        )
        gradient_factor = factor * CONFIG.exponent
        if GRADIENTS_LATE:
            factor, gradient_factor = None if clips_late(CONFIG) else factor, None
        row_gradients = (
            load_row_gradient(row_grads.weight, bh, query_row, T, dropout_p) if CONFIG.row_sums else None,
            load_row_gradient(row_grads.w_log_w, bh, query_row, T, dropout_p) if CONFIG.row_sums == 2 else None,
        )
        products = tl.dot(k, tl.trans(q), input_precision=FLOAT32_PRODUCTS)  # [BLOCK_S, BLOCK_T]
        grad_weights = tl.dot(v, tl.trans(grad_out), input_precision=FLOAT32_PRODUCTS)
        kept = None
        if CONFIG.has_dropout:
            first_key = tl.program_id(1) * CONFIG.block_s
            kept = dropout_mask_tile(first, first_key, bh, T, dropout_p, seed, CONFIG.block_t, CONFIG.block_s).trans()
        row_side = (query_row, factor, gradient_factor, bias, row_gradients)
        dropped_weights, grad_products = _tile_gradients(
            products, grad_weights, row_side, keys[:, None], T, S, kept, ON_DIAGONAL, CONFIG
        )
        rounded_weights = round_weights(dropped_weights, grad_out.dtype, CONFIG)
        grad_v += tl.dot(rounded_weights, grad_out, input_precision=FLOAT32_PRODUCTS)
        grad_k += tl.dot(round_gradients(grad_products, q.dtype), q, input_precision=FLOAT32_PRODUCTS)
    return grad_k, grad_v


@triton.jit(do_not_specialize=UNSPECIALIZED)
def backward_dkdv(
    Q, K, V, Factor, Bias, padding, dropout, H, T, S, GradOut, row_grads, GradK, GradV, CONFIG: tl.constexpr
):  # fmt: skip
    """Compute the gradients of k and v for a block of keys of one head."""
    bh = tl.program_id(0)
    b, h = bh // H, bh % H
    keys = tl.program_id(1) * CONFIG.block_s + tl.arange(0, CONFIG.block_s)
    key_mask = load_key_mask(padding, b, keys, S)
    k, v = (
        load_tile(find_head(K, b, h), keys, key_mask, CONFIG),
        load_tile(find_head(V, b, h), keys, key_mask, CONFIG),
    )
    key_side, query_side = (keys, k, v), (find_head(Q, b, h), find_head(GradOut, b, h), Factor, Bias, row_grads)
    sentence, seeded = (b, bh, T, S), (dropout.p, load_seed(dropout.seed))
    first_real, after_last_real = load_key_bounds(padding.bounds, b, S)
    stop = T
    if (tl.program_id(1) * CONFIG.block_s >= after_last_real) | ((tl.program_id(1) + 1) * CONFIG.block_s <= first_real):
        stop = 0  # all of this program's keys are padding: write zeros
    # See `scales_late`.
    GRADIENTS_LATE: tl.constexpr = V.data.dtype.element_ty != tl.float16 and not CONFIG.factor_shape & 2
    gradients = zeros(CONFIG.block_s, CONFIG.block_d), zeros(CONFIG.block_s, CONFIG.block_d)
    after_diagonal = 0
    if CONFIG.is_causal:
        # The first query that sees any of these keys, and the first that sees all of them, in whole blocks.
        first_key, last_key = tl.program_id(1) * CONFIG.block_s, (tl.program_id(1) + 1) * CONFIG.block_s - 1
        start = tl.maximum(first_key - (S - T), 0) // CONFIG.block_t * CONFIG.block_t
        after_diagonal = tl.cdiv(tl.maximum(last_key - (S - T), 0), CONFIG.block_t) * CONFIG.block_t
        gradients = _add_queries(
            gradients, key_side, query_side, sentence, seeded, start, tl.minimum(after_diagonal, stop), True,
            GRADIENTS_LATE, CONFIG,
        )  # fmt: skip
    grad_k, grad_v = _add_queries(
        gradients, key_side, query_side, sentence, seeded, after_diagonal, stop, False, GRADIENTS_LATE, CONFIG
    )
    scale_k, scale_v = 1 / (1 - dropout.p), 1 / (1 - dropout.p)
    if GRADIENTS_LATE:
        factor = load_per_query(Factor, CONFIG.factor_shape, b, None, T)
        scale_k *= factor * CONFIG.exponent
        if clips_late(CONFIG):
            scale_v *= factor
    grad_k *= scale_k
    grad_v *= scale_v
    if weighs_zeros(CONFIG):
        grad_k = tl.where(key_mask[:, None], grad_k, 0.0)
        grad_v = tl.where(key_mask[:, None], grad_v, 0.0)
    store_tile(find_head(GradK, b, h), grad_k, keys, keys < S, CONFIG)
    store_tile(find_head(GradV, b, h), grad_v, keys, keys < S, CONFIG)
