"""Which implementation serves a call: decided here alone, by device, type, shape and what is wanted.

The environment variable RELUMT_KERNELS says what may be chosen:

    auto        (default) Triton on a GPU where it can; on a CPU blocks of large weights; else the reference
    fused       Triton on a CPU too, where it interprets (TRITON_INTERPRET=1); slow, for tests
    reference   PyTorch's operators alone

What a kernel cannot do goes to the reference, and where it is Triton's that is said once.
"""

import functools
import importlib.util
import logging
import os
from collections.abc import Callable

import torch
from torch import Tensor

from relumt.attention.kernels import pointwise_blocked
from relumt.attention.mask import AttentionMask

logger = logging.getLogger(__name__)

VARIABLE = "RELUMT_KERNELS"
CHOICES = ("auto", "fused", "reference")
TYPES = (torch.float16, torch.bfloat16, torch.float32)
LARGEST_HEAD = 128
LARGEST_FLOAT32_HEAD = 64
LARGE_ON_CPU = 1 << 18
"""Weights of a head from which on a CPU does not make them all at once: from there on that is no slower (dense), or
faster, and takes less memory."""
OLDEST = (8, 0)
"""Compute capability: Ampere."""


def chosen() -> str:
    """What RELUMT_KERNELS says; raises ValueError for what is none of CHOICES."""
    choice = os.environ.get(VARIABLE, "auto")
    if choice not in CHOICES:
        raise ValueError(f"{VARIABLE} is '{choice}'; it must be one of {', '.join(CHOICES)}")
    return choice


def serves(q: Tensor, k: Tensor, v: Tensor, mask: AttentionMask, *objections: str) -> bool:
    """Whether Triton takes a call; q [B, H, T, D], k and v [B, H, S, D]. Where it does not, why is said once.

    objections: the caller's own, "" for none.
    """
    choice = chosen()
    if choice == "reference" or (choice == "auto" and not q.is_cuda):
        return False
    why_not = next(filter(None, (*objections, _objection(q, k, v, mask))), "")
    if why_not:
        _say_once(f"no fused attention: {why_not}; computing it with PyTorch's operators")
    return not why_not


def _objection(q: Tensor, k: Tensor, v: Tensor, mask: AttentionMask) -> str:
    """Why Triton cannot take a call; "" if it can."""
    if unlike := _unlike(q, k, v, mask):
        return unlike
    if q.shape[-1] > LARGEST_HEAD:
        return f"a head of {q.shape[-1]} dimensions"
    if q.is_cuda and torch.cuda.get_device_capability(q.device) < OLDEST:
        return "a GPU without the memory on its chip that the kernels take"
    if 0 in (*q.shape, *k.shape):
        return "nothing to attend with or to"
    if not _has_triton():
        return "Triton is not installed"
    if not q.is_cuda and os.environ.get("TRITON_INTERPRET") != "1":
        return "there is no GPU, and TRITON_INTERPRET is not 1"
    return ""


def _unlike(q: Tensor, k: Tensor, v: Tensor, mask: AttentionMask) -> str:
    """Why only the reference takes such masks, types and shapes; "" if others do too."""
    if mask.attn_mask is not None:
        return "a mask of pairs that is not the causal one"
    if q.dtype not in TYPES or not q.dtype == k.dtype == v.dtype:
        return f"q, k and v are of {q.dtype}, {k.dtype} and {v.dtype}"
    (B, H, _, D), S = q.shape, k.shape[2]
    keys_fit = mask.key_mask is None or mask.key_mask.shape == (B, S)
    if not (k.shape == (B, H, S, D) and v.shape[:3] == (B, H, S) and keys_fit):
        return "shapes that would have to be broadcast"
    return ""


@functools.cache
def _has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None


@functools.cache
def _say_once(message: str) -> None:
    logger.warning(message)


def pointwise(
    q: Tensor, k: Tensor, v: Tensor, mask: AttentionMask, wants_weights: bool, trains_norm: bool
) -> Callable[..., tuple[Tensor, Tensor | None, Tensor | None]] | None:
    """The `attend` of `pointwise` or `pointwise_blocked` that serves a call; None for neither.

    trains_norm: whether gradients come through a norm of what is mixed, which may be larger than float16 holds.
    """
    D, of_weights = q.shape[-1], "the weights themselves are wanted" if wants_weights else ""
    wide = q.is_cuda and q.dtype == torch.float32 and D > LARGEST_FLOAT32_HEAD
    of_size = f"a head of {D} dimensions in float32, too large for a GPU's registers" if wide else ""
    of_values = "values of another size than keys" if v.shape != k.shape else ""
    overflows = trains_norm and q.dtype == torch.float16
    of_norm = "float16 cannot hold the gradients of the norm that follows; train in bfloat16" if overflows else ""
    if serves(q, k, v, mask, of_weights, of_size, of_values, of_norm):
        # Triton is imported at the first call that needs it.
        from relumt.attention.kernels.pointwise import attend

        return attend
    blocked = chosen() == "auto" and q.device.type == "cpu" and q.shape[2] * k.shape[2] >= LARGE_ON_CPU
    return pointwise_blocked.attend if blocked and not wants_weights and not _unlike(q, k, v, mask) else None


def inhibit(
    q: Tensor, k: Tensor, v: Tensor, gamma: float, shift: Tensor, mask: AttentionMask, dropout: float, half: bool
) -> Tensor:
    """`inhibitor_triton.inhibit`."""
    from relumt.attention.kernels import inhibitor_triton

    return inhibitor_triton.inhibit(q, k, v, gamma, shift, mask.key_mask, mask.is_causal, dropout, half)
