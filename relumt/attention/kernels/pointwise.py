"""Attention whose weights depend on their own score alone, in Triton. Shapes: B H T S D.

    s_ij = f_i·(q_i·k_j) + b_i,    w_ij = φ(s_ij) at visible keys, else 0,    mixed_i = Σ_j w_ij v_j

with φ ReLU or the sigmoid. Without softmax's normaliser a block of keys is done when it is added: no row maximum, no
rescaling, nothing kept for the backward pass but q, k and v. What the regulariser wants of a row, Σ_j w_ij and
Σ_j w_ij log w_ij, is added up on the way. The backward pass computes the weights anew, dropout and all: one kernel
goes along the keys for q's gradient, one along the queries for k's and v's.

Blocks of keys that are padding for the whole sentence, or in the future of a whole block of queries, are skipped.
Products are of the inputs' type and added up in float32; of float32 inputs they are exact, not TF32. Under float16 a
weight is held at 65,504, the largest that the product with v can take.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from relumt.attention.kernels.rows import Rows
from relumt.attention.kernels.tiles import bounds, first_and_last, is_kept, tile, with_strides

TINY = tl.constexpr(1.1754943508222875e-38)
"""The smallest normal float32: what log is taken of where a weight is 0."""

LARGEST_HALF = tl.constexpr(65504.0)

VARYING = ["seed", "T", "S", "f_b", "f_t", "b_b", "b_t"]
"""Arguments whose divisibility is not worth a kernel of its own."""


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    rows: Rows,
    keys: Tensor | None,
    causal: bool,
    dropout: float,
    statistics: bool,
    dtype: torch.dtype,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Mix values.

    Args:
        q: [B, H, T, D], of float16, bfloat16 or float32, D from 1 to 128.
        k, v: [B, H, S, D], likewise.
        rows: how products become weights.
        keys: which are real, [B, S] bool; None for all.
        causal: query i sees keys j ≤ S − T + i.
        dropout: probability of dropping a weight.
        statistics: whether to add up the rows.
        dtype: of what is mixed.

    Returns:
        mixed [B, H, T, D]; Σ_j w_ij and Σ_j w_ij log w_ij, [B, H, T] float32 and before dropout, if wanted.
    """
    seed = int(torch.randint(2**31 - 1, ())) if dropout else 0
    real = None if keys is None else keys.contiguous().view(torch.uint8)
    call = _Call(rows, real, bounds(real), causal, dropout, seed, statistics, dtype)
    return _Attend.apply(q, k, v, call)


@dataclass(frozen=True)
class _Call:
    """What both directions need besides q, k and v."""

    rows: Rows
    keys: Tensor | None
    bounds: Tensor | None
    causal: bool
    dropout: float
    seed: int
    statistics: bool
    dtype: torch.dtype

    def arguments(self, q: Tensor, k: Tensor, v: Tensor) -> list:
        """Of the kernels: what they read besides pointers to their own outputs and inputs."""
        T, S = q.shape[2], k.shape[2]
        factor, bias = (None if x is None else x.expand(q.shape[0], T) for x in (self.rows.factor, self.rows.bias))
        return [
            *with_strides(q), *with_strides(k), *with_strides(v), self.keys, self.bounds,
            factor, *factor.stride(), bias, *(bias.stride() if bias is not None else (0, 0)),
            q.shape[1], T, S, self.dropout, self.seed,
        ]  # fmt: skip

    def constants(self, q: Tensor) -> dict[str, object]:
        """Of the kernels: what they are compiled for."""
        return {
            "D": q.shape[3],
            "BLOCK_D": max(16, triton.next_power_of_2(q.shape[3])),
            "ACTIVATION": self.rows.activation,
            "CAUSAL": self.causal,
            "STATISTICS": self.statistics,
            "DROPOUT": self.dropout > 0,
        } | blocks(q)


def blocks(q: Tensor) -> dict[str, int]:
    """Queries and keys of a block, and warps that share it."""
    if q.dtype == torch.float32 or q.shape[3] > 64:
        return {"BLOCK_T": 64, "BLOCK_S": 32, "num_warps": 4, "num_stages": 2}
    short = q.shape[2] <= 64
    return {"BLOCK_T": 64 if short else 128, "BLOCK_S": 64, "num_warps": 4 if short else 8, "num_stages": 2}


class _Attend(torch.autograd.Function):
    """q, k, v and a `_Call` → mixed, Σ w, Σ w log w."""

    @staticmethod
    def forward(ctx, q: Tensor, k: Tensor, v: Tensor, call: _Call) -> tuple[Tensor, Tensor | None, Tensor | None]:
        (B, H, T, D) = q.shape
        ctx.save_for_backward(q, k, v)
        ctx.call = call
        ctx.set_materialize_grads(False)
        mixed = torch.empty(B, T, H, D, dtype=call.dtype, device=q.device).transpose(1, 2)  # as the heads are merged
        total, s_log_s = (q.new_empty(B, H, T, dtype=torch.float32) if call.statistics else None for _ in range(2))
        constants = call.constants(q)
        grid = (B * H, triton.cdiv(T, constants["BLOCK_T"]))
        _forward[grid](*call.arguments(q, k, v), *with_strides(mixed), total, s_log_s, **constants)
        return mixed, total, s_log_s

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor | None, grad_total: Tensor | None, grad_s_log_s: Tensor | None) -> tuple:
        q, k, v = ctx.saved_tensors
        call = ctx.call
        B, H, T, _ = q.shape
        S = k.shape[2]
        if grad is None:
            grad = torch.zeros_like(q)
        # dO meets v in a product, which wants one type of both.
        grad = grad.to(v.dtype)
        of_rows = [None if x is None and not call.statistics else _or_zeros(x, q) for x in (grad_total, grad_s_log_s)]
        grad_q, grad_k, grad_v = (torch.empty_like(x) for x in (q, k, v))
        arguments, constants = call.arguments(q, k, v), call.constants(q)
        given = (*with_strides(grad), *of_rows)
        _backward_of_queries[(B * H, triton.cdiv(T, constants["BLOCK_T"]))](
            *arguments, *given, *with_strides(grad_q), **constants
        )
        _backward_of_keys[(B * H, triton.cdiv(S, constants["BLOCK_S"]))](
            *arguments, *given, *with_strides(grad_k), *with_strides(grad_v), **constants
        )
        return grad_q, grad_k, grad_v, None


def _or_zeros(x: Tensor | None, q: Tensor) -> Tensor:
    return q.new_zeros(q.shape[:3], dtype=torch.float32) if x is None else x.float().contiguous()


@triton.jit
def _seen(Keys, b, queries, keys, T, S, CAUSAL: tl.constexpr):
    """Which keys each query sees, queries × keys."""
    seen = (queries[:, None] < T) & (keys[None] < S)
    if Keys is not None:
        real = tl.load(Keys + b * S + keys, keys < S, 0)
        seen = seen & (real[None] != 0)
    if CAUSAL:
        seen = seen & (keys[None] <= queries[:, None] + S - T)
    return seen


@triton.jit
def _weights(products, factor, bias, seen, ACTIVATION: tl.constexpr):
    """Weights of products q·k, 0 where nothing is seen."""
    scores = products * factor[:, None] + bias[:, None]
    if ACTIVATION == "relu":
        weights = tl.maximum(scores, 0.0, propagate_nan=tl.PropagateNan.ALL)
    else:
        weights = 1 / (1 + tl.exp(-scores))
    return tl.where(seen, weights, 0.0)


@triton.jit
def _per_row(X, s_b, s_t, b, queries, T, other):
    """A number for each query."""
    if X is None:  # Triton compiles what follows a return: hence the else
        return tl.full(queries.shape, other, tl.float32)
    else:
        return tl.load(X + b * s_b + queries * s_t, queries < T, other)


@triton.jit(do_not_specialize=VARYING)
def _forward(
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
    q = tile(Q + b.to(tl.int64) * q_b + h * q_h, q_t, q_d, queries, T, dims, D)
    factor, bias = _per_row(Factor, f_b, f_t, b, queries, T, 0.0), _per_row(Bias, b_b, b_t, b, queries, T, 0.0)
    mixed = tl.zeros([BLOCK_T, BLOCK_D], tl.float32)
    total, s_log_s = tl.zeros([BLOCK_T], tl.float32), tl.zeros([BLOCK_T], tl.float32)
    real, stop = first_and_last(Bounds, b, S)
    start = real // BLOCK_S * BLOCK_S
    if CAUSAL:
        stop = tl.minimum(stop, (tl.program_id(1) + 1) * BLOCK_T + S - T)
    for first in range(start, stop, BLOCK_S):
        keys = first + tl.arange(0, BLOCK_S)
        k = tile(K + b.to(tl.int64) * k_b + h * k_h, k_s, k_d, keys, S, dims, D)
        v = tile(V + b.to(tl.int64) * v_b + h * v_h, v_s, v_d, keys, S, dims, D)
        seen = _seen(Keys, b, queries, keys, T, S, CAUSAL)
        weights = _weights(tl.dot(q, tl.trans(k), input_precision="ieee"), factor, bias, seen, ACTIVATION)
        if STATISTICS:
            total += tl.sum(weights, 1)
            s_log_s += tl.sum(weights * tl.log(tl.maximum(weights, TINY)), 1)
        if DROPOUT:
            kept = is_kept(queries[:, None], keys[None], bh, T, S, dropout, seed)
            weights = tl.where(kept, weights / (1 - dropout), 0.0)
        if v.dtype == tl.float16:
            weights = tl.minimum(weights, LARGEST_HALF, propagate_nan=tl.PropagateNan.ALL)
        mixed += tl.dot(weights.to(v.dtype), v, input_precision="ieee")
    if Mixed.dtype.element_ty == tl.float16:
        mixed = tl.clamp(mixed, -LARGEST_HALF, LARGEST_HALF, propagate_nan=tl.PropagateNan.ALL)
    out = Mixed + b.to(tl.int64) * m_b + h * m_h + queries[:, None] * m_t + dims[None] * m_d
    tl.store(out, mixed.to(Mixed.dtype.element_ty), (queries[:, None] < T) & (dims[None] < D))
    if STATISTICS:
        tl.store(Total + bh * T + queries, total, queries < T)
        tl.store(SLogS + bh * T + queries, s_log_s, queries < T)


@triton.jit
def _gradients(
    q, k, v, grad, factor, bias, of_total, of_s_log_s, queries, keys, bh, Keys, b, T, S, dropout, seed,
    ACTIVATION: tl.constexpr, CAUSAL: tl.constexpr, STATISTICS: tl.constexpr, DROPOUT: tl.constexpr,
):  # fmt: skip
    """Of a block of pairs: the weights after dropout, and the gradient of the products q·k."""
    seen = _seen(Keys, b, queries, keys, T, S, CAUSAL)
    weights = _weights(tl.dot(q, tl.trans(k), input_precision="ieee"), factor, bias, seen, ACTIVATION)
    of_weights = tl.dot(grad, tl.trans(v), input_precision="ieee")
    dropped = weights
    if DROPOUT:
        kept = is_kept(queries[:, None], keys[None], bh, T, S, dropout, seed)
        dropped = tl.where(kept, weights / (1 - dropout), 0.0)
        of_weights = tl.where(kept, of_weights / (1 - dropout), 0.0)
    if STATISTICS:
        of_weights += of_total[:, None] + of_s_log_s[:, None] * (tl.log(tl.maximum(weights, TINY)) + 1)
    if ACTIVATION == "relu":
        of_scores = tl.where(weights > 0, of_weights, 0.0)
    else:
        of_scores = of_weights * weights * (1 - weights)
    if v.dtype == tl.float16:
        dropped = tl.minimum(dropped, LARGEST_HALF, propagate_nan=tl.PropagateNan.ALL)
    return dropped, tl.where(seen, of_scores, 0.0) * factor[:, None]


@triton.jit(do_not_specialize=VARYING)
def _backward_of_queries(
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
    q = tile(Q + b.to(tl.int64) * q_b + h * q_h, q_t, q_d, queries, T, dims, D)
    grad = tile(Grad + b.to(tl.int64) * g_b + h * g_h, g_t, g_d, queries, T, dims, D)
    factor, bias = _per_row(Factor, f_b, f_t, b, queries, T, 0.0), _per_row(Bias, b_b, b_t, b, queries, T, 0.0)
    of_total, of_s_log_s = _per_row(OfTotal, T, 1, bh, queries, T, 0.0), _per_row(OfSLogS, T, 1, bh, queries, T, 0.0)
    grad_q = tl.zeros([BLOCK_T, BLOCK_D], tl.float32)
    real, stop = first_and_last(Bounds, b, S)
    start = real // BLOCK_S * BLOCK_S
    if CAUSAL:
        stop = tl.minimum(stop, (tl.program_id(1) + 1) * BLOCK_T + S - T)
    for first in range(start, stop, BLOCK_S):
        keys = first + tl.arange(0, BLOCK_S)
        k = tile(K + b.to(tl.int64) * k_b + h * k_h, k_s, k_d, keys, S, dims, D)
        v = tile(V + b.to(tl.int64) * v_b + h * v_h, v_s, v_d, keys, S, dims, D)
        _, of_products = _gradients(
            q, k, v, grad, factor, bias, of_total, of_s_log_s, queries, keys, bh, Keys, b, T, S, dropout, seed,
            ACTIVATION, CAUSAL, STATISTICS, DROPOUT,
        )  # fmt: skip
        grad_q += tl.dot(of_products.to(k.dtype), k, input_precision="ieee")
    out = GradQ + b.to(tl.int64) * gq_b + h * gq_h + queries[:, None] * gq_t + dims[None] * gq_d
    tl.store(out, grad_q.to(GradQ.dtype.element_ty), (queries[:, None] < T) & (dims[None] < D))


@triton.jit(do_not_specialize=VARYING)
def _backward_of_keys(
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
    dims = tl.arange(0, BLOCK_D)
    k = tile(K + b.to(tl.int64) * k_b + h * k_h, k_s, k_d, keys, S, dims, D)
    v = tile(V + b.to(tl.int64) * v_b + h * v_h, v_s, v_d, keys, S, dims, D)
    grad_k, grad_v = tl.zeros([BLOCK_S, BLOCK_D], tl.float32), tl.zeros([BLOCK_S, BLOCK_D], tl.float32)
    start, stop = 0, T
    if CAUSAL:
        start = tl.maximum(tl.program_id(1) * BLOCK_S - (S - T), 0) // BLOCK_T * BLOCK_T
    real, after = first_and_last(Bounds, b, S)
    if (tl.program_id(1) * BLOCK_S >= after) | ((tl.program_id(1) + 1) * BLOCK_S <= real):
        stop = 0
    for first in range(start, stop, BLOCK_T):
        queries = first + tl.arange(0, BLOCK_T)
        q = tile(Q + b.to(tl.int64) * q_b + h * q_h, q_t, q_d, queries, T, dims, D)
        grad = tile(Grad + b.to(tl.int64) * g_b + h * g_h, g_t, g_d, queries, T, dims, D)
        factor, bias = _per_row(Factor, f_b, f_t, b, queries, T, 0.0), _per_row(Bias, b_b, b_t, b, queries, T, 0.0)
        of_total = _per_row(OfTotal, T, 1, bh, queries, T, 0.0)
        of_s_log_s = _per_row(OfSLogS, T, 1, bh, queries, T, 0.0)
        dropped, of_products = _gradients(
            q, k, v, grad, factor, bias, of_total, of_s_log_s, queries, keys, bh, Keys, b, T, S, dropout, seed,
            ACTIVATION, CAUSAL, STATISTICS, DROPOUT,
        )  # fmt: skip
        grad_v += tl.dot(tl.trans(dropped.to(grad.dtype)), grad, input_precision="ieee")
        grad_k += tl.dot(tl.trans(of_products.to(q.dtype)), q, input_precision="ieee")
    within = (keys[:, None] < S) & (dims[None] < D)
    out_k = GradK + b.to(tl.int64) * gk_b + h * gk_h + keys[:, None] * gk_s + dims[None] * gk_d
    out_v = GradV + b.to(tl.int64) * gv_b + h * gv_h + keys[:, None] * gv_s + dims[None] * gv_d
    tl.store(out_k, grad_k.to(GradK.dtype.element_ty), within)
    tl.store(out_v, grad_v.to(GradV.dtype.element_ty), within)
