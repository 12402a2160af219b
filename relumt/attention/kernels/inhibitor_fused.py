"""The Inhibitor, compiled: no tensor of T·S·D in either direction. Shapes: N = B·H, T queries, S keys, D head size.

Heads and queries go in blocks, so that what is kept of a block's pairs, r_ij = |q_i − k_j|₁/γ − α and z = r⁺, is no
larger than half of q; the backward pass computes it anew. Each loop over pairs is a function of its own, which
`torch.compile` makes into one kernel for any shape; it gets its tensors transposed (`_t`) where the sum would else walk
through memory in strides. A hidden pair has r = ∞: it gives 0 and gets no gradient.
"""

import functools
import math
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from relumt.attention.kernels import inhibitor_naive
from relumt.attention.kernels.derivatives import first_only
from relumt.attention.mask import AttentionMask


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
    q: Tensor, k: Tensor, v: Tensor, gamma: float, shift: Tensor, mask: AttentionMask, dropped: Tensor | None
) -> Tensor:
    """As `inhibitor_naive.inhibit`, but for first derivatives only."""
    if 0 in (*q.shape, *k.shape, *v.shape):
        return inhibitor_naive.inhibit(q, k, v, gamma, shift, mask, dropped)
    of_keys = (1, 1) if mask.key_mask is None else (mask.key_mask.shape[0], 1)
    B, H = torch.broadcast_shapes(q.shape[:2], k.shape[:2], v.shape[:2], of_keys)
    flat = (x.expand(B, H, *x.shape[2:]).flatten(0, 1).contiguous() for x in (q, k, v))
    shifts = shift.view(1, -1).expand(B, H).flatten()
    keys = None if mask.key_mask is None else mask.key_mask.expand(B, -1).repeat_interleave(H, 0)
    dropped = None if dropped is None else dropped.expand(B, H, -1, -1).flatten(0, 1)
    hidden = _Hidden(AttentionMask(keys, mask.is_causal, mask.attn_mask), dropped)
    return _Inhibit.apply(*flat, gamma, shifts, hidden).unflatten(0, (B, H))


@dataclass(frozen=True)
class _Hidden:
    """Which pairs count for nothing: `mask` has a key_mask of [N, S], `dropped` is [N, T, S] bool or None."""

    mask: AttentionMask
    dropped: Tensor | None

    def blocks(self, q: Tensor, k: Tensor) -> Iterator[tuple[slice, slice, slice]]:
        """Heads, queries and the keys that they see, so few that their pairs take about half of q's memory.

        Heads are what the compiled loops share among threads; the more queries of a head at a time, the better.
        """
        (N, T, D), S, threads = q.shape, k.shape[1], torch.get_num_threads()
        pairs = N * T * D // 2
        heads = min(N, max(1, pairs // (T * S * threads)) * threads)
        rows = max(1, min(T, pairs // (heads * S)))
        for first in range(0, N, heads):
            for start in range(0, T, rows):
                stop = min(start + rows, T)
                keys = self.mask.slice_queries(start, stop, T, S)[1]
                if keys:
                    yield slice(first, first + heads), slice(start, stop), slice(0, keys)

    def pairs(self, q: Tensor, k: Tensor, rate: Tensor, shift: Tensor, heads: slice, rows: slice) -> Tensor:
        """r of a block, [heads, rows, keys], ∞ at hidden pairs; `rate` is 1/γ."""
        mask, keys = self.mask.slice_queries(rows.start, rows.stop, q.shape[1], k.shape[1])
        if mask.key_mask is not None:
            mask = replace(mask, key_mask=mask.key_mask[heads])
        r = _compiled(_distance)(q[heads, rows], k[heads, :keys], rate, shift[heads])
        dropped = None if self.dropped is None else self.dropped[heads, None, rows, :keys]
        hidden = inhibitor_naive.hidden_pairs(mask, dropped, *r.shape[1:], r.device)
        return r if hidden is None else r.masked_fill_(hidden[:, 0], math.inf)


class _Inhibit(torch.autograd.Function):
    """q [N, T, D], k [N, S, D], v [N, S, any], γ, shift [N], hidden → [N, T, any]."""

    @staticmethod
    def forward(ctx, q: Tensor, k: Tensor, v: Tensor, gamma: float, shift: Tensor, hidden: _Hidden) -> Tensor:
        ctx.save_for_backward(q, k, v, shift)
        ctx.gamma, ctx.hidden = gamma, hidden
        rate = q.new_tensor(1 / gamma)
        mixed = v.new_zeros(*q.shape[:2], v.shape[2])
        for heads, rows, keys in hidden.blocks(q, k):
            z = hidden.pairs(q, k, rate, shift, heads, rows).clamp_(min=0)
            mixed[heads, rows] = _compiled(_inhibited)(v[heads, keys].transpose(1, 2), z)
        return mixed

    @staticmethod
    @first_only
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, shift = ctx.saved_tensors
        hidden = ctx.hidden
        rate = q.new_tensor(1 / ctx.gamma)
        grad = grad.contiguous()
        grad_q, grad_k, grad_v, grad_shift = (torch.zeros_like(x) for x in (q, k, v, shift))
        for heads, rows, keys in hidden.blocks(q, k):
            some_q, some_k, some_v, some_grad = q[heads, rows], k[heads, keys], v[heads, keys], grad[heads, rows]
            r = hidden.pairs(q, k, rate, shift, heads, rows)
            z = r.clamp(min=0)
            grad_v[heads, keys] += _compiled(_gradient_of_values)(some_v, z.transpose(1, 2), some_grad)
            grad_r = _compiled(_gradient_of_pairs)(some_v, r, z, some_grad)
            grad_q[heads, rows] = _compiled(_gradient_of_queries)(some_q, some_k, grad_r)
            grad_k[heads, keys] += _compiled(_gradient_of_keys)(some_q, some_k, grad_r.transpose(1, 2))
            grad_shift[heads] -= grad_r.sum((1, 2))
        return grad_q.mul_(rate), grad_k.mul_(rate), grad_v, None, grad_shift, None


def _distance(q: Tensor, k: Tensor, rate: Tensor, shift: Tensor) -> Tensor:
    return (q[:, :, None] - k[:, None]).abs().sum(-1) * rate - shift[:, None, None]


def _inhibited(v_t: Tensor, z: Tensor) -> Tensor:
    return (v_t[:, None] - z[:, :, None]).clamp(min=0).sum(-1)


def _gradient_of_values(v: Tensor, z_t: Tensor, grad: Tensor) -> Tensor:
    return _where_positive(v[:, :, None] - z_t[..., None], grad[:, None]).sum(2)


def _gradient_of_pairs(v: Tensor, r: Tensor, z: Tensor, grad: Tensor) -> Tensor:
    return -_where_positive(r, _where_positive(v[:, None] - z[..., None], grad[:, :, None]).sum(-1))


def _gradient_of_queries(q: Tensor, k: Tensor, grad_r: Tensor) -> Tensor:
    return (grad_r[..., None] * (q[:, :, None] - k[:, None]).sign()).sum(2)


def _gradient_of_keys(q: Tensor, k: Tensor, grad_r_t: Tensor) -> Tensor:
    return (grad_r_t[..., None] * (k[:, :, None] - q[:, None]).sign()).sum(2)


def _where_positive(x: Tensor, y: Tensor) -> Tensor:
    """y times the derivative of x⁺: 1, ½ where x = 0, or 0, as in `inhibitor_naive.positive`."""
    return torch.where(x > 0, y, torch.where(x == 0, y / 2, 0))


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
