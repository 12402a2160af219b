"""Compiled calls, which one graph serves whatever their length: the choice of kernels is made when a call runs."""

from typing import Any

from torch import Tensor

from relumt.attention.kernels import pointwise_triton
from relumt.attention.kernels.hopper import launch
from relumt.attention.kernels.hopper.launch import new_kept
from relumt.attention.kernels.hopper.selection import serves_sizes
from relumt.attention.kernels.pointwise_operator import NUM_SHARED
from relumt.attention.kernels.pointwise_triton import new_gradients, new_outputs

__all__ = ["new_gradients", "new_kept", "new_outputs", "run_backward", "run_forward"]


def run_forward(*inputs: Any) -> tuple[Tensor | None, ...]:
    """Compute attention, with the arguments and results of `launch.run_forward`.

    A graph knows one size of the bits that dropout keeps, so they are allocated for `pointwise_triton`, too.
    """
    q, k, dropout_p = inputs[0], inputs[1], inputs[NUM_SHARED - 1]
    if serves_sizes(q, k, dropout_p):
        return launch.run_forward(*inputs)
    return *pointwise_triton.run_forward(*inputs), new_kept(q, k) if dropout_p else None


def run_backward(*inputs: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Return gradients, with the arguments of `launch.run_backward`."""
    num_without_kept = 3 + NUM_SHARED
    q, k, dropout_p = inputs[3], inputs[4], inputs[num_without_kept - 1]
    if serves_sizes(q, k, dropout_p):
        return launch.run_backward(*inputs)
    return pointwise_triton.run_backward(*inputs[:num_without_kept])
