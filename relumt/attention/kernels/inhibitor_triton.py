"""The Inhibitor in Triton, for GPUs: no tensor of T·S in either direction. Shapes: B H T S D, V columns of values.

    r_ij = Σ_d |q_id − k_jd|/γ − α,    z_ij = r⁺_ij,    H_iv = Σ_j (v_jv − z_ij)⁺

A program holds a block of queries and takes the keys one by one, so that a distance is a sum along a row of the block,
and what is subtracted from a key's values is one number a query. The backward pass computes r anew: one kernel goes
along the keys for the gradients of q and α, one holds keys and goes along the queries for those of k and v. A pair that
is hidden or dropped has r = ∞: it gives 0 and gets no gradient. All of it is in float32.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from relumt.attention.kernels.tiles import bounds, first_and_last, is_kept, tile, with_strides

BLOCK = 32
"""Queries, or keys, that a program holds."""


def inhibit(
    q: Tensor, k: Tensor, v: Tensor, gamma: float, shift: Tensor, keys: Tensor | None, causal: bool, dropout: float
) -> Tensor:
    """Eq. 4 of [IN], [B, H, T, V].

    Args:
        q: [B, H, T, D] float32.
        k: [B, H, S, D] float32.
        v: [B, H, S, V] float32.
        gamma: γ, which divides distances.
        shift: α of each head, [H, 1, 1].
        keys: which are real, [B, S] bool; None for all.
        causal: query i sees keys j ≤ S − T + i.
        dropout: probability of dropping a pair; what is left is not scaled.
    """
    seed = int(torch.randint(2**31 - 1, ())) if dropout else 0
    real = None if keys is None else keys.contiguous().view(torch.uint8)
    call = _Call(1 / gamma, real, bounds(real), causal, dropout, seed)
    return _Inhibit.apply(q, k, v, shift.flatten().contiguous(), call)


@dataclass(frozen=True)
class _Call:
    """What both directions need besides tensors with gradients."""

    rate: float
    keys: Tensor | None
    bounds: Tensor | None
    causal: bool
    dropout: float
    seed: int

    def arguments(self, q: Tensor, k: Tensor, v: Tensor, shift: Tensor) -> list:
        """Of the kernels: what all of them read."""
        return [
            *with_strides(q), *with_strides(k), *with_strides(v), shift, self.keys, self.bounds,
            self.rate, q.shape[1], q.shape[2], k.shape[2], self.dropout, self.seed,
        ]  # fmt: skip

    def constants(self, q: Tensor, v: Tensor) -> dict[str, object]:
        """Of the kernels: what they are compiled for."""
        D, V = q.shape[3], v.shape[3]
        return {
            "D": D, "BLOCK_D": triton.next_power_of_2(D), "V_SIZE": V, "BLOCK_V": triton.next_power_of_2(V),
            "CAUSAL": self.causal, "DROPOUT": self.dropout > 0, "BLOCK": BLOCK, "num_warps": 4,
        }  # fmt: skip


class _Inhibit(torch.autograd.Function):
    """q, k, v, α [H] and a `_Call` → H."""

    @staticmethod
    def forward(ctx, q: Tensor, k: Tensor, v: Tensor, shift: Tensor, call: _Call) -> Tensor:
        B, H, T, _ = q.shape
        ctx.save_for_backward(q, k, v, shift)
        ctx.call = call
        mixed = torch.empty(B, T, H, v.shape[3], dtype=q.dtype, device=q.device).transpose(1, 2)
        forward[B * H, triton.cdiv(T, BLOCK)](
            *call.arguments(q, k, v, shift), *with_strides(mixed), **call.constants(q, v)
        )
        return mixed

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, shift = ctx.saved_tensors
        call = ctx.call
        B, H, T, _ = q.shape
        grad_q, grad_k, grad_v = (torch.empty_like(x) for x in (q, k, v))
        of_queries = q.new_empty(B, H, T)
        arguments, constants = call.arguments(q, k, v, shift), call.constants(q, v)
        backward_of_queries[B * H, triton.cdiv(T, BLOCK)](
            *arguments, *with_strides(grad), *with_strides(grad_q), of_queries, **constants
        )
        backward_of_keys[B * H, triton.cdiv(k.shape[2], BLOCK)](
            *arguments, *with_strides(grad), *with_strides(grad_k), *with_strides(grad_v), **constants
        )
        return grad_q, grad_k, grad_v, of_queries.sum((0, 2)), None


@triton.jit
def _row(X, s_row, s_d, row, dims, D: tl.constexpr):
    """One row of a tensor, 0 beyond its end."""
    return tl.load(X + row * s_row + dims * s_d, dims < D, 0.0)


@triton.jit
def _step(x):
    """The derivative of x⁺: 1, ½ where x = 0, or 0."""
    return tl.where(x > 0, 1.0, tl.where(x == 0, 0.5, 0.0))


@triton.jit
def _sign(x):
    return tl.where(x > 0, 1.0, tl.where(x < 0, -1.0, 0.0))


@triton.jit
def _inhibition(
    block, other, rate, shift, queries, key, bh, Keys, b, T, S, dropout, seed,
    CAUSAL: tl.constexpr, DROPOUT: tl.constexpr,
):  # fmt: skip
    """r of a block of rows with one other row; `queries` and `key` number the pairs, as blocks that broadcast."""
    r = tl.sum(tl.abs(block - other[None]), 1) * rate - shift
    seen = (queries < T) & (key < S)
    if Keys is not None:
        seen = seen & (tl.load(Keys + b * S + key, key < S, 0) != 0)
    if CAUSAL:
        seen = seen & (key <= queries + S - T)
    if DROPOUT:
        seen = seen & is_kept(queries, key, bh, T, S, dropout, seed)
    return tl.where(seen, r, float("inf"))


@triton.jit(do_not_specialize=["seed", "T", "S"])
def forward(
    Q, q_b, q_h, q_t, q_d, K, k_b, k_h, k_s, k_d, V, v_b, v_h, v_s, v_d, Shift, Keys, Bounds,
    rate, H, T, S, dropout, seed, Mixed, m_b, m_h, m_t, m_d,
    D: tl.constexpr, BLOCK_D: tl.constexpr, V_SIZE: tl.constexpr, BLOCK_V: tl.constexpr,
    CAUSAL: tl.constexpr, DROPOUT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A block of queries of one head, key by key."""
    bh = tl.program_id(0)
    b, h = bh // H, bh % H
    queries = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    dims, columns = tl.arange(0, BLOCK_D), tl.arange(0, BLOCK_V)
    q = tile(Q + b.to(tl.int64) * q_b + h * q_h, q_t, q_d, queries, queries < T, dims, D)
    shift = tl.load(Shift + h)
    mixed = tl.zeros([BLOCK, BLOCK_V], tl.float32)
    start, stop = first_and_last(Bounds, b, S)
    if CAUSAL:
        stop = tl.minimum(stop, (tl.program_id(1) + 1) * BLOCK + S - T)
    of_k, of_v = K + b.to(tl.int64) * k_b + h * k_h, V + b.to(tl.int64) * v_b + h * v_h
    for key in range(start, stop):
        k, v = _row(of_k, k_s, k_d, key, dims, D), _row(of_v, v_s, v_d, key, columns, V_SIZE)
        r = _inhibition(q, k, rate, shift, queries, key, bh, Keys, b, T, S, dropout, seed, CAUSAL, DROPOUT)
        mixed += tl.maximum(v[None] - tl.maximum(r, 0.0)[:, None], 0.0)
    out = Mixed + b.to(tl.int64) * m_b + h * m_h + queries[:, None] * m_t + columns[None] * m_d
    tl.store(out, mixed, (queries[:, None] < T) & (columns[None] < V_SIZE))


@triton.jit(do_not_specialize=["seed", "T", "S"])
def backward_of_queries(
    Q, q_b, q_h, q_t, q_d, K, k_b, k_h, k_s, k_d, V, v_b, v_h, v_s, v_d, Shift, Keys, Bounds,
    rate, H, T, S, dropout, seed, Grad, g_b, g_h, g_t, g_d, GradQ, gq_b, gq_h, gq_t, gq_d, OfQueries,
    D: tl.constexpr, BLOCK_D: tl.constexpr, V_SIZE: tl.constexpr, BLOCK_V: tl.constexpr,
    CAUSAL: tl.constexpr, DROPOUT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Gradients of q and, a number for each query, of α: a block of queries of one head, key by key."""
    bh = tl.program_id(0)
    b, h = bh // H, bh % H
    queries = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    dims, columns = tl.arange(0, BLOCK_D), tl.arange(0, BLOCK_V)
    q = tile(Q + b.to(tl.int64) * q_b + h * q_h, q_t, q_d, queries, queries < T, dims, D)
    grad = tile(Grad + b.to(tl.int64) * g_b + h * g_h, g_t, g_d, queries, queries < T, columns, V_SIZE)
    shift = tl.load(Shift + h)
    grad_q, grad_shift = tl.zeros([BLOCK, BLOCK_D], tl.float32), tl.zeros([BLOCK], tl.float32)
    start, stop = first_and_last(Bounds, b, S)
    if CAUSAL:
        stop = tl.minimum(stop, (tl.program_id(1) + 1) * BLOCK + S - T)
    of_k, of_v = K + b.to(tl.int64) * k_b + h * k_h, V + b.to(tl.int64) * v_b + h * v_h
    for key in range(start, stop):
        k, v = _row(of_k, k_s, k_d, key, dims, D), _row(of_v, v_s, v_d, key, columns, V_SIZE)
        r = _inhibition(q, k, rate, shift, queries, key, bh, Keys, b, T, S, dropout, seed, CAUSAL, DROPOUT)
        of_r = -tl.sum(_step(v[None] - tl.maximum(r, 0.0)[:, None]) * grad, 1) * _step(r)
        grad_q += of_r[:, None] * _sign(q - k[None]) * rate
        grad_shift -= of_r
    out = GradQ + b.to(tl.int64) * gq_b + h * gq_h + queries[:, None] * gq_t + dims[None] * gq_d
    tl.store(out, grad_q, (queries[:, None] < T) & (dims[None] < D))
    tl.store(OfQueries + bh * T + queries, grad_shift, queries < T)


@triton.jit(do_not_specialize=["seed", "T", "S"])
def backward_of_keys(
    Q, q_b, q_h, q_t, q_d, K, k_b, k_h, k_s, k_d, V, v_b, v_h, v_s, v_d, Shift, Keys, Bounds,
    rate, H, T, S, dropout, seed, Grad, g_b, g_h, g_t, g_d,
    GradK, gk_b, gk_h, gk_s, gk_d, GradV, gv_b, gv_h, gv_s, gv_d,
    D: tl.constexpr, BLOCK_D: tl.constexpr, V_SIZE: tl.constexpr, BLOCK_V: tl.constexpr,
    CAUSAL: tl.constexpr, DROPOUT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Gradients of k and v: a block of keys of one head, query by query."""
    bh = tl.program_id(0)
    b, h = bh // H, bh % H
    keys = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    dims, columns = tl.arange(0, BLOCK_D), tl.arange(0, BLOCK_V)
    k = tile(K + b.to(tl.int64) * k_b + h * k_h, k_s, k_d, keys, keys < S, dims, D)
    v = tile(V + b.to(tl.int64) * v_b + h * v_h, v_s, v_d, keys, keys < S, columns, V_SIZE)
    shift = tl.load(Shift + h)
    grad_k, grad_v = tl.zeros([BLOCK, BLOCK_D], tl.float32), tl.zeros([BLOCK, BLOCK_V], tl.float32)
    start, stop = 0, T
    if CAUSAL:
        start = tl.maximum(tl.program_id(1) * BLOCK - (S - T), 0)
    real, after = first_and_last(Bounds, b, S)
    if (tl.program_id(1) * BLOCK >= after) | ((tl.program_id(1) + 1) * BLOCK <= real):
        stop = 0
    of_q, of_grad = Q + b.to(tl.int64) * q_b + h * q_h, Grad + b.to(tl.int64) * g_b + h * g_h
    for query in range(start, stop):
        q, grad = _row(of_q, q_t, q_d, query, dims, D), _row(of_grad, g_t, g_d, query, columns, V_SIZE)
        r = _inhibition(k, q, rate, shift, query, keys, bh, Keys, b, T, S, dropout, seed, CAUSAL, DROPOUT)
        through = _step(v - tl.maximum(r, 0.0)[:, None]) * grad[None]
        of_r = -tl.sum(through, 1) * _step(r)
        grad_v += through
        grad_k += of_r[:, None] * _sign(k - q[None]) * rate
    out_k = GradK + b.to(tl.int64) * gk_b + h * gk_h + keys[:, None] * gk_s + dims[None] * gk_d
    out_v = GradV + b.to(tl.int64) * gv_b + h * gv_h + keys[:, None] * gv_s + columns[None] * gv_d
    tl.store(out_k, grad_k, (keys[:, None] < S) & (dims[None] < D))
    tl.store(out_v, grad_v, (keys[:, None] < S) & (columns[None] < V_SIZE))
