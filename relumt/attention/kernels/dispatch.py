"""Which implementation serves a call: decided here alone, by device, type, shape and what is wanted.

The environment variable RELUMT_KERNELS says what may be chosen:

    auto        (default) the fused kernels on a GPU where they can, and on a CPU where they win, else the reference
    fused       the same, and on a CPU too where Triton interprets (TRITON_INTERPRET=1); slow, for tests
    reference   PyTorch's operators alone

What a kernel cannot do goes to the reference, and that is said once.
"""

import functools
import importlib.util
import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from relumt.attention.kernels import pointwise_blocked

if TYPE_CHECKING:
    from relumt.attention.base import Visible

logger = logging.getLogger(__name__)

VARIABLE = "RELUMT_KERNELS"
CHOICES = ("auto", "fused", "reference")
TYPES = (torch.float16, torch.bfloat16, torch.float32)
LARGEST_HEAD = 128
LARGEST_FLOAT32_HEAD = 64
LARGE_ON_CPU = 1 << 18
"""Weights of a head from which on it is faster on a CPU not to make them all at once."""
OLDEST = (8, 0)
"""Compute capability: Ampere."""


def chosen() -> str:
    """What RELUMT_KERNELS says; raises ValueError for what is none of CHOICES."""
    choice = os.environ.get(VARIABLE, "auto")
    if choice not in CHOICES:
        raise ValueError(f"{VARIABLE} is '{choice}'; it must be one of {', '.join(CHOICES)}")
    return choice


def serves(
    q: Tensor, k: Tensor, v: Tensor, visible: "Visible", wants_weights: bool = False, normed: bool = False
) -> bool:
    """Whether Triton takes a call; q [B, H, T, D], k and v [B, H, S, D]. Where it does not, why is said once.

    normed: whether what is mixed goes through a norm, whose gradients can be larger than float16 holds.
    """
    choice = chosen()
    if choice == "reference" or (choice == "auto" and not q.is_cuda):
        return False
    why_not = _objection(q, k, v, visible, wants_weights)
    if normed and q.dtype == torch.float16 and torch.is_grad_enabled():
        why_not = why_not or "float16 cannot hold the gradients of the norm that follows; train in bfloat16"
    if why_not:
        _say_once(f"no fused attention: {why_not}; computing it with PyTorch's operators")
    return not why_not


def _objection(q: Tensor, k: Tensor, v: Tensor, visible: "Visible", wants_weights: bool) -> str:
    """Why a kernel cannot take a call; "" if it can."""
    if wants_weights:
        return "the weights themselves are wanted"
    if visible.pairs is not None:
        return "a mask of pairs that is not the causal one"
    if q.dtype not in TYPES or not q.dtype == k.dtype == v.dtype:
        return f"q, k and v are of {q.dtype}, {k.dtype} and {v.dtype}"
    if q.shape[-1] > LARGEST_HEAD:
        return f"a head of {q.shape[-1]} dimensions"
    if q.dtype == torch.float32 and q.shape[-1] > LARGEST_FLOAT32_HEAD and q.is_cuda:
        return f"a head of {q.shape[-1]} dimensions in float32, too large for a GPU's registers"
    if q.is_cuda and torch.cuda.get_device_capability(q.device) < OLDEST:
        return "a GPU without the memory on its chip that the kernels take"
    if 0 in (*q.shape, *k.shape):
        return "nothing to attend with or to"
    if not _has_triton():
        return "Triton is not installed"
    if not q.is_cuda and os.environ.get("TRITON_INTERPRET") != "1":
        return "there is no GPU, and TRITON_INTERPRET is not 1"
    return ""


@functools.cache
def _has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None


@functools.cache
def _say_once(message: str) -> None:
    logger.warning(message)


def pointwise(
    q: Tensor, k: Tensor, v: Tensor, visible: "Visible", wants_weights: bool, normed: bool
) -> Callable[..., tuple[Tensor, Tensor | None, Tensor | None]] | None:
    """The `attend` of `pointwise` or `pointwise_blocked` that serves a call, as `serves` has it; None for neither."""
    if serves(q, k, v, visible, wants_weights, normed):
        # Triton is imported at the first call that needs it.
        from relumt.attention.kernels.pointwise import attend

        return attend
    blocked = chosen() == "auto" and q.device.type == "cpu" and q.shape[2] * k.shape[2] >= LARGE_ON_CPU
    possible = not wants_weights and visible.pairs is None and q.dtype in TYPES and q.dtype == k.dtype == v.dtype
    return pointwise_blocked.attend if blocked and possible else None


def inhibit(
    q: Tensor, k: Tensor, v: Tensor, gamma: float, shift: Tensor, visible: "Visible", dropout: float, half: bool
) -> Tensor:
    """`inhibitor_triton.inhibit`."""
    from relumt.attention.kernels import inhibitor_triton

    return inhibitor_triton.inhibit(q, k, v, gamma, shift, visible.keys, visible.causal, dropout, half)
