"""The Inhibitor, compiled: no tensor of T·S·D in either direction. Shapes: N = B·H, T queries, S keys, D head size.

Queries go in blocks, so that what is kept of a block's pairs, r_ij = |q_i − k_j|₁/γ − α, is no larger than half of q;
the backward pass computes it anew. Each loop over pairs is a function of its own, which `torch.compile` makes into one
kernel for any shape. A hidden pair has r = ∞: it gives 0 and gets no gradient.
"""

import functools
import math
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from relumt.attention.base import Visible
from relumt.attention.kernels.inhibitor_naive import hidden_pairs


def require_compiler() -> None:
    """Raise ValueError where torch.compile would fail for want of a C++ compiler."""
    compiler = os.environ.get("CXX", "g++")
    if shutil.which(compiler) is None:
        raise ValueError(
            f"the fused implementation needs a C++ compiler and there is no {compiler}; install it, name another in "
            "CXX, or train with --inhibitor-implementation cdist and translate with --model-overrides "
            "\"{'inhibitor_implementation': 'cdist'}\""
        )


@torch.compiler.disable
def inhibit(
    q: Tensor, k: Tensor, v: Tensor, gamma: float, shift: Tensor, visible: Visible, dropped: Tensor | None
) -> Tensor:
    """As `inhibitor_naive.inhibit`."""
    B, H = q.shape[:2]
    flat = (x.flatten(0, 1).contiguous() for x in (q, k, v))
    shifts = shift.view(1, -1).expand(B, H).flatten()
    return _Inhibit.apply(*flat, gamma, shifts, _Hidden(visible, dropped, H)).unflatten(0, (B, H))


@dataclass(frozen=True)
class _Hidden:
    """Which pairs count for nothing; `dropped` is [B, H, T, S] bool or None."""

    visible: Visible
    dropped: Tensor | None
    num_heads: int

    def blocks(self, q: Tensor, k: Tensor) -> Iterator[tuple[slice, slice]]:
        """Blocks of queries, small enough for their pairs to take half of q's memory, and the keys that they see."""
        (_, T, D), S = q.shape, k.shape[1]
        rows = max(1, min(T, T * D // (2 * S)))
        for start in range(0, T, rows):
            stop = min(start + rows, T)
            keys = self.visible.rows(start, stop, T, S)[1]
            if keys:
                yield slice(start, stop), slice(0, keys)

    def mask_(self, r: Tensor, rows: slice, T: int, S: int) -> Tensor:
        """Overwrite r, the pairs of a block [N, rows, keys], with ∞ at hidden ones."""
        visible, keys = self.visible.rows(rows.start, rows.stop, T, S)
        dropped = None if self.dropped is None else self.dropped[:, :, rows, :keys]
        hidden = hidden_pairs(visible, dropped, r.shape[1], keys, r.device)
        if hidden is not None:
            r.unflatten(0, (-1, self.num_heads)).masked_fill_(hidden, math.inf)
        return r


class _Inhibit(torch.autograd.Function):
    """q [N, T, D], k [N, S, D], v [N, S, any], γ, shift [N], hidden → [N, T, any]."""

    @staticmethod
    def forward(ctx, q: Tensor, k: Tensor, v: Tensor, gamma: float, shift: Tensor, hidden: _Hidden) -> Tensor:
        ctx.save_for_backward(q, k, v, shift)
        ctx.gamma, ctx.hidden = gamma, hidden
        rate = q.new_tensor(1 / gamma)
        T, S = q.shape[1], k.shape[1]
        mixed = v.new_zeros(q.shape[0], T, v.shape[2])
        for rows, keys in hidden.blocks(q, k):
            r = hidden.mask_(_compiled(_distance)(q[:, rows], k[:, keys], rate, shift), rows, T, S)
            mixed[:, rows] = _compiled(_inhibited)(v[:, keys], r)
        return mixed

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, shift = ctx.saved_tensors
        hidden, T, S = ctx.hidden, q.shape[1], k.shape[1]
        rate = q.new_tensor(1 / ctx.gamma)
        grad = grad.contiguous()
        grad_q, grad_k, grad_v, grad_shift = (torch.zeros_like(x) for x in (q, k, v, shift))
        for rows, keys in hidden.blocks(q, k):
            r = hidden.mask_(_compiled(_distance)(q[:, rows], k[:, keys], rate, shift), rows, T, S)
            grad_v[:, keys] += _compiled(_gradient_of_values)(v[:, keys], r, grad[:, rows])
            grad_r = _compiled(_gradient_of_pairs)(v[:, keys], r, grad[:, rows])
            grad_q[:, rows] = _compiled(_gradient_of_queries)(q[:, rows], k[:, keys], grad_r)
            grad_k[:, keys] -= _compiled(_gradient_of_keys)(q[:, rows], k[:, keys], grad_r)
            grad_shift -= grad_r.sum((1, 2))
        return grad_q.mul_(rate), grad_k.mul_(rate), grad_v, None, grad_shift, None


def _distance(q: Tensor, k: Tensor, rate: Tensor, shift: Tensor) -> Tensor:
    return (q[:, :, None] - k[:, None]).abs().sum(-1) * rate - shift[:, None, None]


def _inhibited(v: Tensor, r: Tensor) -> Tensor:
    return (v[:, None] - r.clamp(min=0)[..., None]).clamp(min=0).sum(2)


def _gradient_of_values(v: Tensor, r: Tensor, grad: Tensor) -> Tensor:
    return (_step(v[:, None] - r.clamp(min=0)[..., None]) * grad[:, :, None]).sum(1)


def _gradient_of_pairs(v: Tensor, r: Tensor, grad: Tensor) -> Tensor:
    return -_step(r) * (_step(v[:, None] - r.clamp(min=0)[..., None]) * grad[:, :, None]).sum(-1)


def _gradient_of_queries(q: Tensor, k: Tensor, grad_r: Tensor) -> Tensor:
    return (grad_r[..., None] * (q[:, :, None] - k[:, None]).sign()).sum(2)


def _gradient_of_keys(q: Tensor, k: Tensor, grad_r: Tensor) -> Tensor:
    return (grad_r[..., None] * (q[:, :, None] - k[:, None]).sign()).sum(1)


def _step(x: Tensor) -> Tensor:
    """Derivative of x⁺: 0, ½ or 1, as in `inhibitor_naive.positive`."""
    return (1 + x.sign()) / 2


@functools.cache
def _compiled(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """`function`, compiled once for each type and device, for every size."""
    from torch._dynamo.decorators import mark_unbacked

    compiled = torch.compile(function, dynamic=True, fullgraph=True)

    def call(*tensors: Tensor) -> Tensor:
        # dynamic=True alone still compiles anew for every size of 1, and lengths and batches of 1 are common here.
        plain = [_plain(tensor) for tensor in tensors]
        for tensor in plain:
            for dimension in range(tensor.dim()):
                mark_unbacked(tensor, dimension)
        return compiled(*plain)

    return call


def _plain(x: Tensor) -> Tensor:
    """`x`, contiguous, and nothing but its sizes: what else differs between tensors would compile anew.

    That is: whether it is a view, of what, whether it needs a gradient, and the strides of dimensions of size 1.
    """
    x = x.contiguous()
    strides = [math.prod(x.shape[dimension + 1 :]) for dimension in range(x.dim())]
    return x.new_empty(0).set_(x.untyped_storage(), x.storage_offset(), x.shape, strides)
