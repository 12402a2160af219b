"""Sparsemax and 1.5-entmax on a GPU by the Triton kernels of AdaSplash-2, if the package `adasplash` is installed.

The package computes rows of any length, but Triton compiles it for each length, and its backward pass tries several
blocks for each. So rows are padded to the next power of two, with scores that get a weight of 0. Its public functions
do not run in Triton's interpreter.
"""

import functools
import importlib.util

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._compile import _disable_dynamo

from relumt.attention.kernels.double_backward import refuse_double_backward

MIN_SIZE = 32
NUM_STEPS = 4
"""Steps that refine the threshold after its estimate from a histogram. The package's default of 2 leaves an error that
is larger than rounding where scores are close to the threshold; each step reads the scores once."""


def serves(device: torch.device, dtype: torch.dtype) -> bool:
    """Return whether the package is installed and has been written for scores of this type on this device."""
    return device.type == "cuda" and dtype == torch.float32 and _is_installed()


@functools.cache
def _is_installed() -> bool:
    return importlib.util.find_spec("adasplash") is not None


def padded_size(size: int) -> int:
    """Return the length that a row of `size` scores is padded to."""
    return max(MIN_SIZE, 1 << (size - 1).bit_length())


@_disable_dynamo
def project(scores: Tensor, alpha: float, out_of_support: float) -> Tensor:
    """Return sparsemax (α = 2) or 1.5-entmax (α = 1.5) of each row.

    Args:
        scores: [..., S] float32 on a GPU, finite; the largest of each row is 0.
        alpha: 2 or 1.5.
        out_of_support: a score that gets a weight of 0.
    """
    from adasplash import triton_entmax_v2

    size = scores.shape[-1]
    padded = F.pad(scores, (0, padded_size(size) - size), value=out_of_support).contiguous()
    weights: Tensor = triton_entmax_v2(padded, alpha=alpha, n_iter=NUM_STEPS)
    if weights.requires_grad:
        weights.register_hook(_forbid_double_backward)
    return weights[..., :size]


def _forbid_double_backward(grad: Tensor) -> None:
    """Refuse second derivatives, which the package would silently leave out."""
    refuse_double_backward("AdaSplash", "set RELUMT_KERNELS=reference")
