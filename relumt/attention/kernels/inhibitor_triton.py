"""The Inhibitor in Triton, for GPUs: no tensor of T·S in either direction. Shapes: B H T S D, V columns of values.

    r_ij = Σ_d |q_id − k_jd|/γ − α,    z_ij = r⁺_ij,    H_iv = Σ_j (v_jv − z_ij)⁺

A program is one warp. It holds a block of queries, dimensions × queries, so that a thread has several dimensions of
several queries and a distance is a sum of its own numbers and two exchanges; it takes the keys one by one. Where there
are few queries the keys are cut into parts, each of a program, and what they give is added up. The backward pass
computes r anew: one kernel goes along the keys for the gradients of q and α, one holds keys and goes along the queries
for those of k and v. A pair that is hidden or dropped has r = ∞: it gives 0 and gets no gradient. All of it is in
float32.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from relumt.attention.kernels.tiles import bounds, first_and_last, is_kept

BLOCK = {"values": 32, "gradients": 16}
"""Queries, or keys, that a program holds, as fit into its registers with 64 dimensions and 64 columns of values."""

PROGRAMS = 4096
"""As many warps keep a GPU busy; with fewer the other side is cut into parts."""

SHORTEST_PART = 128


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

    def arguments(self, q: Tensor, k: Tensor, shift: Tensor) -> list:
        """Of the kernels: what all of them read."""
        numbers = (self.rate, q.shape[1], q.shape[2], k.shape[2], self.dropout, self.seed)
        return [shift, self.keys, self.bounds, *numbers]

    def constants(self, q: Tensor, v: Tensor, block: int) -> dict[str, object]:
        """Of the kernels: what they are compiled for."""
        D, V = q.shape[3], v.shape[3]
        return {
            "D": D, "BLOCK_D": triton.next_power_of_2(D), "V_SIZE": V, "BLOCK_V": triton.next_power_of_2(V),
            "CAUSAL": self.causal, "DROPOUT": self.dropout > 0, "BLOCK": block, "num_warps": 1,
        }  # fmt: skip


class _Inhibit(torch.autograd.Function):
    """q, k, v, α [H] and a `_Call` → H."""

    @staticmethod
    def forward(ctx, q: Tensor, k: Tensor, v: Tensor, shift: Tensor, call: _Call) -> Tensor:
        ctx.save_for_backward(q, k, v, shift)
        ctx.call = call
        block = block_of("values", q.shape[3], v.shape[3])
        grid, part, partial = _cut(q, k, block)
        mixed = partial(v)
        values[grid](
            held(q, block), k.contiguous(), v.contiguous(), *call.arguments(q, k, shift), part, mixed.shape[-1], mixed,
            **call.constants(q, v, block),
        )  # fmt: skip
        return _added(mixed, q)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, shift = ctx.saved_tensors
        call, block = ctx.call, block_of("gradients", q.shape[3], v.shape[3])
        arguments, constants = call.arguments(q, k, shift), call.constants(q, v, block)
        grid, part, partial = _cut(q, k, block)
        grad_q, of_queries = partial(q), partial(q[..., :1])
        gradients_of_queries[grid](
            held(q, block), held(grad, block), k.contiguous(), v.contiguous(), *arguments, part, grad_q.shape[-1],
            grad_q, of_queries, **constants,
        )  # fmt: skip
        grid, part, partial = _cut(k, q, block)
        grad_k, grad_v = partial(k), partial(v)
        gradients_of_keys[grid](
            held(k, block), held(v, block), q.contiguous(), grad.contiguous(), *arguments, part, grad_k.shape[-1],
            grad_k, grad_v, **constants,
        )  # fmt: skip
        of_shift = _added(of_queries, q).sum((0, 2, 3))
        return _added(grad_q, q), _added(grad_k, k), _added(grad_v, k), of_shift, None


def block_of(what: str, dims: int, columns: int) -> int:
    """How many queries, or keys, a program holds of so many dimensions, with values of so many columns."""
    return max(4, BLOCK[what] * 128 // max(128, triton.next_power_of_2(dims + columns)))


def held(x: Tensor, block: int) -> Tensor:
    """x [B, H, T, D] as programs hold it: [B, H, D, T'] with T' the next multiple of `block`, 0 beyond T."""
    return F.pad(x.mT, (0, -x.shape[2] % block)).contiguous()


def _cut(rows: Tensor, others: Tensor, block: int) -> tuple[tuple[int, int, int], int, Callable[[Tensor], Tensor]]:
    """The grid of programs that hold `block` rows each, how many others a part has, and what makes a result.

    The result's last dimension is that of x [B, H, T, D]: [parts, B, H, D, T'].
    """
    B, H, count, _ = rows.shape
    programs = B * H * triton.cdiv(count, block)
    parts = max(1, min(triton.cdiv(PROGRAMS, programs), others.shape[2] // SHORTEST_PART))

    def partial(x: Tensor) -> Tensor:
        return x.new_empty(parts, B, H, x.shape[3], triton.cdiv(count, block) * block)

    return (B * H, triton.cdiv(count, block), parts), triton.cdiv(others.shape[2], parts), partial


def _added(partial: Tensor, like: Tensor) -> Tensor:
    """The sum of the parts, [B, H, T, D] with the T of `like`."""
    return partial.sum(0)[..., : like.shape[2]].mT


@triton.jit
def _positive(x):
    """x⁺; NaN stays NaN."""
    return tl.maximum(x, 0.0, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def _through(x, y):
    """y where x⁺ has the derivative 1, half of it where x = 0, else 0."""
    return tl.where(x > 0, y, tl.where(x == 0, 0.5 * y, 0.0))


@triton.jit
def _signed(x, y):
    """y times the sign of x."""
    return tl.where(x > 0, y, tl.where(x < 0, -y, 0.0))


@triton.jit
def _block(X, bh, stride, columns, dims, D: tl.constexpr):
    """Of a tensor made by `held`: dims × columns, 0 beyond D."""
    return tl.load(X + (bh.to(tl.int64) * D + dims[:, None]) * stride + columns[None], dims[:, None] < D, 0.0)


@triton.jit
def _row(X, bh, count, row, dims, D: tl.constexpr):
    """One row of a tensor [B, H, count, D], as a column; 0 beyond D."""
    return tl.load(X + (bh.to(tl.int64) * count + row) * D + dims, dims < D, 0.0)[:, None]


@triton.jit
def _keep(X, x, bh, stride, columns, dims, D: tl.constexpr):
    """Write dims × columns to this part of a result."""
    first = (tl.program_id(2).to(tl.int64) * tl.num_programs(0) + bh) * D
    tl.store(X + (first + dims[:, None]) * stride + columns[None], x, dims[:, None] < D)


@triton.jit
def _inhibition(
    block, other, rate, shift, queries, key, bh, Keys, b, T, S, dropout, seed,
    CAUSAL: tl.constexpr, DROPOUT: tl.constexpr,
):  # fmt: skip
    """r of a block of columns with one other; `queries` and `key` number the pairs, as blocks that broadcast."""
    r = tl.sum(tl.abs(block - other), 0) * rate - shift
    seen = (queries < T) & (key < S)
    if Keys is not None:
        seen = seen & (tl.load(Keys + b * S + key, key < S, 0) != 0)
    if CAUSAL:
        seen = seen & (key <= queries + S - T)
    if DROPOUT:
        seen = seen & is_kept(queries, key, bh, T, S, dropout, seed)
    return tl.where(seen, r, float("inf"))


@triton.jit
def _keys_of_part(Bounds, b, part, T, S, CAUSAL: tl.constexpr, BLOCK: tl.constexpr):
    """From which key to which this program goes."""
    start, stop = first_and_last(Bounds, b, S)
    if CAUSAL:
        stop = tl.minimum(stop, (tl.program_id(1) + 1) * BLOCK + S - T)
    return tl.maximum(start, tl.program_id(2) * part), tl.minimum(stop, (tl.program_id(2) + 1) * part)


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
    q, shift = _block(Q, bh, stride, queries, dims, D), tl.load(Shift + h)
    mixed = tl.zeros([BLOCK_V, BLOCK], tl.float32)
    start, stop = _keys_of_part(Bounds, b, part, T, S, CAUSAL, BLOCK)
    for key in range(start, stop):
        k, v = _row(K, bh, S, key, dims, D), _row(V, bh, S, key, columns, V_SIZE)
        r = _inhibition(q, k, rate, shift, queries, key, bh, Keys, b, T, S, dropout, seed, CAUSAL, DROPOUT)
        mixed += _positive(v - _positive(r)[None])
    _keep(Mixed, mixed, bh, stride, queries, columns, V_SIZE)


@triton.jit(do_not_specialize=["seed", "T", "S", "part"])
def gradients_of_queries(
    Q, Grad, K, V, Shift, Keys, Bounds, rate, H, T, S, dropout, seed, part, stride, GradQ, OfQueries,
    D: tl.constexpr, BLOCK_D: tl.constexpr, V_SIZE: tl.constexpr, BLOCK_V: tl.constexpr,
    CAUSAL: tl.constexpr, DROPOUT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Of q and, a number for each query, of α: a block of queries of one head, along the keys of a part."""
    bh = tl.program_id(0)
    b, h = bh // H, bh % H
    queries = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    dims, columns = tl.arange(0, BLOCK_D), tl.arange(0, BLOCK_V)
    q, grad = _block(Q, bh, stride, queries, dims, D), _block(Grad, bh, stride, queries, columns, V_SIZE)
    shift = tl.load(Shift + h)
    grad_q, grad_shift = tl.zeros([BLOCK_D, BLOCK], tl.float32), tl.zeros([BLOCK], tl.float32)
    start, stop = _keys_of_part(Bounds, b, part, T, S, CAUSAL, BLOCK)
    for key in range(start, stop):
        k, v = _row(K, bh, S, key, dims, D), _row(V, bh, S, key, columns, V_SIZE)
        r = _inhibition(q, k, rate, shift, queries, key, bh, Keys, b, T, S, dropout, seed, CAUSAL, DROPOUT)
        of_r = -_through(r, tl.sum(_through(v - _positive(r)[None], grad), 0))
        grad_q += _signed(q - k, of_r[None])
        grad_shift -= of_r
    _keep(GradQ, grad_q * rate, bh, stride, queries, dims, D)
    _keep(OfQueries, grad_shift[None], bh, stride, queries, tl.arange(0, 1), 1)


@triton.jit(do_not_specialize=["seed", "T", "S", "part"])
def gradients_of_keys(
    K, V, Q, Grad, Shift, Keys, Bounds, rate, H, T, S, dropout, seed, part, stride, GradK, GradV,
    D: tl.constexpr, BLOCK_D: tl.constexpr, V_SIZE: tl.constexpr, BLOCK_V: tl.constexpr,
    CAUSAL: tl.constexpr, DROPOUT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Of k and v: a block of keys of one head, along the queries of a part."""
    bh = tl.program_id(0)
    b, h = bh // H, bh % H
    keys = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    dims, columns = tl.arange(0, BLOCK_D), tl.arange(0, BLOCK_V)
    k, v = _block(K, bh, stride, keys, dims, D), _block(V, bh, stride, keys, columns, V_SIZE)
    shift = tl.load(Shift + h)
    grad_k, grad_v = tl.zeros([BLOCK_D, BLOCK], tl.float32), tl.zeros([BLOCK_V, BLOCK], tl.float32)
    start, stop = tl.program_id(2) * part, tl.minimum(T, (tl.program_id(2) + 1) * part)
    if CAUSAL:
        start = tl.maximum(tl.program_id(1) * BLOCK - (S - T), start)
    real, after = first_and_last(Bounds, b, S)
    if (tl.program_id(1) * BLOCK >= after) | ((tl.program_id(1) + 1) * BLOCK <= real):
        stop = 0
    for query in range(start, stop):
        q, grad = _row(Q, bh, T, query, dims, D), _row(Grad, bh, T, query, columns, V_SIZE)
        r = _inhibition(k, q, rate, shift, query, keys, bh, Keys, b, T, S, dropout, seed, CAUSAL, DROPOUT)
        through = _through(v - _positive(r)[None], grad)
        of_r = -_through(r, tl.sum(through, 0))
        grad_v += through
        grad_k += _signed(k - q, of_r[None])
    _keep(GradK, grad_k * rate, bh, stride, keys, dims, D)
    _keep(GradV, grad_v, bh, stride, keys, columns, V_SIZE)
