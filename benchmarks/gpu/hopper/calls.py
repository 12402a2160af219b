"""Calls of relumt's Hopper kernels: random inputs, and the same results in float64."""

import importlib
import math
import sys
import types
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jobs import DROPOUT, WIDTH, Job
from torch import Tensor

ROOT = Path(__file__).resolve().parents[3]


def import_relumt(module: str) -> Any:
    """Import a module of relumt.attention.kernels without what is around it, which needs more than PyTorch."""
    for name in ("relumt", "relumt.attention", "relumt.attention.kernels"):
        if name not in sys.modules:
            sys.modules[name] = types.ModuleType(name)
            sys.modules[name].__path__ = [str(ROOT / name.replace(".", "/"))]
    return importlib.import_module(f"relumt.attention.kernels.{module}")


@dataclass
class Call:
    """The arguments of a call with B sentences, T queries and S keys.

    Attributes:
        q, k, v, grad_out: [B, H, T or S, D], transposed from [B, T or S, H, D].
        factor: [B, T or 1] float32.
        bias: [1, 1] float32 or None.
        row_grads: gradients of Σw and Σw log w, [B, H, T], or None.
        key_mask: [B, S] bool or None. Hidden keys and values are NaN.
        key_bounds: what relumt computes once for a mask, [B, 2] int32.
        seed: [] int64 or None.
    """

    job: Job
    q: Tensor
    k: Tensor
    v: Tensor
    grad_out: Tensor
    factor: Tensor
    bias: Tensor | None
    row_grads: tuple[Tensor | None, Tensor | None]
    key_mask: Tensor | None
    key_bounds: Tensor | None
    seed: Tensor | None

    @property
    def dropout_p(self) -> float:
        return DROPOUT if self.job.dropout else 0.0

    @property
    def inputs(self) -> tuple[Any, ...]:
        """What both directions need, as in `pointwise_triton.run_forward`."""
        tensors = (self.q, self.k, self.v, self.factor, self.bias, self.key_mask, self.key_bounds, self.seed)
        return *tensors, self.job.activation, self.job.causal, self.dropout_p

    @property
    def row_sums(self) -> int:
        """How many row sums the call returns."""
        return 1 if self.job.normalized else 2 * self.job.row_stats

    def forward(self, kernels: Any) -> Any:
        """Launch the forward kernel."""
        return kernels.run_forward(*self.inputs, self.row_sums, self.q.dtype)

    def backward(self, kernels: Any, kept: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Launch the backward kernels."""
        return kernels.run_backward(self.grad_out, *self.row_grads, *self.inputs, kept)


def make_call(job: Job, B: int, T: int, S: int, device: str) -> Call:
    """Return random inputs. With padding, all sentences miss a key in the middle, and the second one has none."""
    dtype = getattr(torch, job.dtype)
    D, H = job.head_dim, WIDTH // job.head_dim
    q, k, v, grad_out = (torch.randn(B, n, H, D, device=device, dtype=dtype).transpose(1, 2) for n in (T, S, S, T))
    for x in (q, k):  # multiples of 1/4: scores are exact, so rounding does not decide whether one is positive
        x.mul_(4).round_().div_(4)
    factor = (D * S / 2) ** -0.5 * (1 + torch.rand(B, T if job.per_query else 1, device=device))
    bias = torch.ones(1, 1, device=device) if job.normalized else None
    if job.normalized:  # as in `relu_l1`
        factor = torch.full((B, 1), D**-0.5 / exponent(job), device=device)
    key_mask, key_bounds = None, None
    if job.padded:
        b, positions = torch.arange(B, device=device)[:, None], torch.arange(S, device=device)
        key_mask = (positions >= b * S // (5 * B)) & (positions < S - b * S // (3 * B)) & (positions != S // 2)
        key_mask[1:2] = False
        key_bounds = import_relumt("key_bounds").key_bounds(key_mask)
        for x in (k, v):
            x.masked_fill_(~key_mask[:, None, :, None], math.nan)
    seed = torch.full((), 0x123456789ABC, device=device) if job.dropout else None
    needed = job.row_grads or job.normalized, job.row_grads
    row_grads = [torch.randn(B, H, T, device=device) if is_needed else None for is_needed in needed]
    return Call(job, q, k, v, grad_out, factor, bias, tuple(row_grads), key_mask, key_bounds, seed)


def exponent(job: Job) -> int:
    """Return the power of ReLU."""
    return int(import_relumt("pointwise_params").exponent(job.activation))


def reference(call: Call, kept: Tensor | None) -> dict[str, Tensor]:
    """Return name → what the kernels compute, in float64.

    kept: [B, H, T, S] bool, which pairs dropout keeps; None for all.
    """
    q, k, v, grad_out = (x.double() for x in (call.q, call.k, call.v, call.grad_out))
    T, S = q.shape[2], k.shape[2]
    visible = torch.ones(q.shape[0], 1, T, S, dtype=torch.bool, device=q.device)
    if call.key_mask is not None:
        visible = visible & call.key_mask[:, None, None]
        k, v = (x.masked_fill(~call.key_mask[:, None, :, None], 0) for x in (k, v))
    if call.job.causal:
        visible = visible & torch.ones(T, S, dtype=torch.bool, device=q.device).tril(S - T)
    factor = call.factor.double()[:, None, :, None]
    bias = 0.0 if call.bias is None else call.bias.double()
    rectified = (q @ k.mT * factor + bias).relu() * visible  # [B, H, T, S]
    p = exponent(call.job)
    weights = rectified**p
    dropout = 1.0 if kept is None else kept / (1 - round(call.dropout_p * 128) / 128)
    grad_weights = (grad_out @ v.mT) * dropout
    g, h = (None if x is None else x.double()[..., None] for x in call.row_grads)
    grad_weights = grad_weights if g is None else grad_weights + g
    grad_weights = grad_weights if h is None else grad_weights + h * (1 + weights.clamp(min=1e-300).log())
    grad_scores = grad_weights * (rectified > 0) * p * rectified ** (p - 1) * factor
    return {
        "out": (weights * dropout) @ v,
        "Σw": weights.sum(-1),
        "Σw log w": torch.xlogy(weights, weights).sum(-1),
        "dq": grad_scores @ k,
        "dk": grad_scores.mT @ q,
        "dv": (weights * dropout).mT @ grad_out,
    }


def unpack_bits(words: Tensor, rows: int, columns: int) -> Tensor:
    """Return the bits of `layouts`: [heads · C/128, R/2, 8, 2] int16 -> [heads, rows, columns] bool."""
    blocks, half = -(-columns // 128), words.shape[1]
    words = words.unflatten(0, (-1, blocks))
    k = torch.arange(16, device=words.device)
    bits = words.int()[..., None] >> k // 2 + k % 2 * 8 & 1
    # [heads, column // 128, row // 2, column % 8, row % 2, column // 8 % 16] -> [heads, R, C]
    return bits.permute(0, 2, 4, 1, 5, 3).reshape(-1, 2 * half, 128 * blocks)[:, :rows, :columns].bool()
