"""The Inhibitor with `torch.compile`: no T·S·D tensor in either direction.

Shapes: N = B·H sentences × heads, T queries, S keys, D head size, V value size.

Heads and queries are processed in blocks, so that a block's shifted distances r_ij = |q_i − k_j|₁/γ − α and z = r⁺ take
at most half as much memory as q; the backward pass computes them again. Each loop over pairs is a function of its own,
which `torch.compile` turns into one kernel for all shapes. It receives its tensors transposed (`_t`) where the sum
would otherwise read memory in strides. A hidden pair has r = ∞: it contributes 0 and gets no gradient.
"""

import functools
import math
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch._compile import _disable_dynamo  # torch.compiler.disable would import torch._dynamo now: 2 seconds

from relumt.attention.kernels import inhibitor_naive
from relumt.attention.kernels.double_backward import forbid_double_backward
from relumt.attention.mask import AttentionMask


def require_compiler() -> None:
    """Raise ValueError if there is no C++ compiler, which `torch.compile` needs."""
    compiler = os.environ.get("CXX", "g++")
    if shutil.which(compiler) is None:
        raise ValueError(
            f"the fused implementation needs a C++ compiler, and {compiler} was not found; install it, set CXX to "
            "another one, or train with --inhibitor-implementation cdist and translate with --model-overrides "
            "\"{'inhibitor_implementation': 'cdist'}\""
        )


@_disable_dynamo
def attend(
    q: Tensor, k: Tensor, v: Tensor, gamma: float, shift: Tensor, mask: AttentionMask, dropped: Tensor | None
) -> Tensor:
    """Compute the same as `inhibitor_naive.attend`, with first derivatives only."""
    if 0 in (*q.shape, *k.shape, *v.shape):
        return inhibitor_naive.attend(q, k, v, gamma, shift, mask, dropped)
    B, H = q.shape[:2]
    flat = (x.flatten(0, 1).contiguous() for x in (q, k, v))  # [B, H, …] -> [N, …]
    shifts = shift.view(1, -1).expand(B, H).flatten()
    key_mask = None if mask.key_mask is None else mask.key_mask.repeat_interleave(H, 0)
    dropped = None if dropped is None else dropped.flatten(0, 1)
    hidden = _HiddenPairs(AttentionMask(key_mask, mask.is_causal, mask.attn_mask), dropped)
    output: Tensor = _Attend.apply(*flat, gamma, shifts, hidden)
    return output.view(B, H, *output.shape[1:])  # [N, T, V] -> [B, H, T, V]


@dataclass(frozen=True)
class _HiddenPairs:
    """Which pairs contribute nothing: `mask` has a key_mask of [N, S], `dropped` is [N, T, S] bool or None."""

    mask: AttentionMask
    dropped: Tensor | None

    def blocks(self, q: Tensor, k: Tensor) -> Iterator[tuple[slice, slice, slice]]:
        """Yield heads, queries and the keys they see, with at most half as many pairs as q has elements.

        The compiled loops share heads among threads, and work best with many queries of a head at a time.
        """
        (N, T, D), S, threads = q.shape, k.shape[1], torch.get_num_threads()
        pairs = N * T * D // 2
        block_n = min(N, max(1, pairs // (T * S * threads)) * threads)
        block_t = max(1, min(T, pairs // (block_n * S)))
        for first in range(0, N, block_n):
            for start in range(0, T, block_t):
                stop = min(start + block_t, T)
                num_keys = self.mask.slice_queries(start, stop, T, S)[1]
                if num_keys:
                    yield slice(first, first + block_n), slice(start, stop), slice(0, num_keys)

    def shifted_distances(
        self, q: Tensor, k: Tensor, inv_gamma: Tensor, shift: Tensor, heads: slice, queries: slice
    ) -> Tensor:
        """Return r of a block, [heads, queries, keys], ∞ at hidden pairs."""
        mask, num_keys = self.mask.slice_queries(queries.start, queries.stop, q.shape[1], k.shape[1])
        if mask.key_mask is not None:
            mask = replace(mask, key_mask=mask.key_mask[heads])
        r = _compiled(_shifted_distances)(q[heads, queries], k[heads, :num_keys], inv_gamma, shift[heads])
        dropped = None if self.dropped is None else self.dropped[heads, None, queries, :num_keys]
        hidden = inhibitor_naive.hidden_pairs(mask, dropped, r.shape[1], r.shape[2], r.device)
        return r if hidden is None else r.masked_fill_(hidden[:, 0], math.inf)


class _Attend(torch.autograd.Function):
    """(q [N, T, D], k [N, S, D], v [N, S, V], γ, shift [N], hidden pairs) → output [N, T, V]."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, gamma: float, shift: Tensor, hidden: _HiddenPairs) -> Tensor:
        ctx.save_for_backward(q, k, v, shift)
        ctx.gamma, ctx.hidden = gamma, hidden
        inv_gamma = q.new_tensor(1 / gamma)  # a tensor: compiled code would be specialized for a number
        output = v.new_zeros(*q.shape[:2], v.shape[2])
        for heads, queries, keys in hidden.blocks(q, k):
            z = hidden.shifted_distances(q, k, inv_gamma, shift, heads, queries).clamp_(min=0)
            output[heads, queries] = _compiled(_inhibited_sum)(v[heads, keys].transpose(1, 2), z)
        return output

    @staticmethod
    @forbid_double_backward
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, shift = ctx.saved_tensors
        hidden: _HiddenPairs = ctx.hidden
        inv_gamma = q.new_tensor(1 / ctx.gamma)
        grad_output = grad_output.contiguous()
        grad_q, grad_k, grad_v, grad_shift = (torch.zeros_like(x) for x in (q, k, v, shift))
        for heads, queries, keys in hidden.blocks(q, k):
            q_, k_, v_, grad = q[heads, queries], k[heads, keys], v[heads, keys], grad_output[heads, queries]
            r = hidden.shifted_distances(q, k, inv_gamma, shift, heads, queries)
            z = r.clamp(min=0)
            grad_v[heads, keys] += _compiled(_value_gradient)(v_, z.transpose(1, 2), grad)
            grad_r = _compiled(_distance_gradient)(v_, r, z, grad)
            grad_q[heads, queries] = _compiled(_query_gradient)(q_, k_, grad_r)
            grad_k[heads, keys] += _compiled(_key_gradient)(q_, k_, grad_r.transpose(1, 2))
            grad_shift[heads] -= grad_r.sum((1, 2))
        return grad_q.mul_(inv_gamma), grad_k.mul_(inv_gamma), grad_v, None, grad_shift, None


def _shifted_distances(q: Tensor, k: Tensor, inv_gamma: Tensor, shift: Tensor) -> Tensor:
    return (q[:, :, None] - k[:, None]).abs().sum(-1) * inv_gamma - shift[:, None, None]  # [N, T, S]


def _inhibited_sum(v_t: Tensor, z: Tensor) -> Tensor:
    return (v_t[:, None] - z[:, :, None]).clamp(min=0).sum(-1)  # [N, 1, V, S] − [N, T, 1, S] -> [N, T, V]


def _value_gradient(v: Tensor, z_t: Tensor, grad: Tensor) -> Tensor:
    return _positive_part_backward(v[:, :, None] - z_t[..., None], grad[:, None]).sum(2)  # [N, S, T, V] -> [N, S, V]


def _distance_gradient(v: Tensor, r: Tensor, z: Tensor, grad: Tensor) -> Tensor:
    grad_z = -_positive_part_backward(v[:, None] - z[..., None], grad[:, :, None]).sum(-1)  # [N, T, S, V] -> [N, T, S]
    return _positive_part_backward(r, grad_z)


def _query_gradient(q: Tensor, k: Tensor, grad_r: Tensor) -> Tensor:
    return (grad_r[..., None] * (q[:, :, None] - k[:, None]).sign()).sum(2)  # [N, T, S, D] -> [N, T, D]


def _key_gradient(q: Tensor, k: Tensor, grad_r_t: Tensor) -> Tensor:
    return (grad_r_t[..., None] * (k[:, :, None] - q[:, None]).sign()).sum(2)  # [N, S, T, D] -> [N, S, D]


def _positive_part_backward(x: Tensor, grad: Tensor) -> Tensor:
    """Return `grad` times the derivative of x⁺, which is ½ at 0 as in `inhibitor_naive.positive_part`."""
    return torch.where(x > 0, grad, torch.where(x == 0, grad / 2, 0))


@functools.cache
def _compiled(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return `function`, compiled once per dtype and device for all sizes."""
    from torch._dynamo.decorators import mark_unbacked

    compiled = torch.compile(function, dynamic=True, fullgraph=True)

    def call(*tensors: Tensor) -> Tensor:
        # dynamic=True alone compiles again for sizes of 1, and lengths and batches of 1 are common here.
        plain = [_plain(tensor) for tensor in tensors]
        for tensor in plain:
            for dimension in range(tensor.dim()):
                mark_unbacked(tensor, dimension)
        return compiled(*plain)

    return call


def _plain(x: Tensor) -> Tensor:
    """Return `x` as a contiguous tensor that differs from others in its sizes only.

    `torch.compile` also guards on whether a tensor is a view, whether it requires a gradient, and on the strides of
    dimensions of size 1; any difference would compile again.
    """
    x = x.contiguous()
    strides = [math.prod(x.shape[dimension + 1 :]) for dimension in range(x.dim())]
    return x.new_empty(0).set_(x.untyped_storage(), x.storage_offset(), x.shape, strides)
