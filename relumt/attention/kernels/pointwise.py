"""Attention whose weights depend on their own score alone, in Triton. Shapes: B H T S D.

    s_ij = f_i·(q_i·k_j) + b_i,    w_ij = φ(s_ij) at visible keys, else 0,    mixed_i = Σ_j w_ij v_j

with φ ReLU or the sigmoid. Without softmax's normaliser a block of keys is done when it is added: no row maximum, no
rescaling, nothing kept for the backward pass but q, k and v. What the regulariser wants of a row, Σ_j w_ij and
Σ_j w_ij log w_ij, is added up on the way. The backward pass computes the weights anew, dropout and all: one kernel
goes along the keys for q's gradient, one along the queries for k's and v's.
"""

from dataclasses import dataclass

import torch
import triton
from torch import Tensor

from relumt.attention.kernels.blocks import blocks
from relumt.attention.kernels.derivatives import first_only
from relumt.attention.kernels.key_bounds import bounds
from relumt.attention.kernels.pointwise_params import PointwiseParams
from relumt.attention.kernels.pointwise_triton import backward_of_keys, backward_of_queries, forward
from relumt.attention.kernels.tiles import with_strides


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    rows: PointwiseParams,
    keys: Tensor | None,
    causal: bool,
    dropout: float,
    need_row_stats: bool,
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
    call = _Call(rows, real, bounds(real), causal, dropout, seed, need_row_stats, dtype)
    return _Attend.apply(q, k, v, call)


@dataclass(frozen=True)
class _Call:
    """What both directions need besides q, k and v."""

    rows: PointwiseParams
    keys: Tensor | None
    bounds: Tensor | None
    causal: bool
    dropout: float
    seed: int
    need_row_stats: bool
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

    def constants(self, kernel: str, held: Tensor) -> dict[str, object]:
        """Of a kernel: what it is compiled for; its programs hold rows of `held`."""
        return {
            "D": held.shape[3],
            "BLOCK_D": max(16, triton.next_power_of_2(held.shape[3])),
            "ACTIVATION": self.rows.activation,
            "CAUSAL": self.causal,
            "STATISTICS": self.need_row_stats,
            "DROPOUT": self.dropout > 0,
        } | blocks(kernel, held, self.dropout > 0)


class _Attend(torch.autograd.Function):
    """q, k, v and a `_Call` → mixed, Σ w, Σ w log w."""

    @staticmethod
    def forward(ctx, q: Tensor, k: Tensor, v: Tensor, call: _Call) -> tuple[Tensor, Tensor | None, Tensor | None]:
        (B, H, T, D) = q.shape
        ctx.save_for_backward(q, k, v)
        ctx.call = call
        ctx.set_materialize_grads(False)
        mixed = torch.empty(B, T, H, D, dtype=call.dtype, device=q.device).transpose(1, 2)  # as the heads are merged
        total, w_log_w = (q.new_empty(B, H, T, dtype=torch.float32) if call.need_row_stats else None for _ in range(2))
        constants = call.constants("forward", q)
        grid = (B * H, triton.cdiv(T, constants["BLOCK_T"]))
        forward[grid](*call.arguments(q, k, v), *with_strides(mixed), total, w_log_w, **constants)
        return mixed, total, w_log_w

    @staticmethod
    @first_only
    def backward(ctx, grad: Tensor | None, grad_total: Tensor | None, grad_w_log_w: Tensor | None) -> tuple:
        q, k, v = ctx.saved_tensors
        call = ctx.call
        B, H, T, _ = q.shape
        S = k.shape[2]
        if grad is None:
            grad = torch.zeros_like(q)
        # dO meets v in a product, which wants one type of both.
        grad = grad.to(v.dtype)
        of_rows = [
            None if x is None and not call.need_row_stats else _or_zeros(x, q) for x in (grad_total, grad_w_log_w)
        ]
        grad_q, grad_k, grad_v = (torch.empty_like(x) for x in (q, k, v))
        arguments, given = call.arguments(q, k, v), (*with_strides(grad), *of_rows)
        constants = call.constants("of_queries", q)
        backward_of_queries[(B * H, triton.cdiv(T, constants["BLOCK_T"]))](
            *arguments, *given, *with_strides(grad_q), **constants
        )
        constants = call.constants("of_keys", k)
        backward_of_keys[(B * H, triton.cdiv(S, constants["BLOCK_S"]))](
            *arguments, *given, *with_strides(grad_k), *with_strides(grad_v), **constants
        )
        return grad_q, grad_k, grad_v, None


def _or_zeros(x: Tensor | None, q: Tensor) -> Tensor:
    return q.new_zeros(q.shape[:3], dtype=torch.float32) if x is None else x.float().contiguous()
