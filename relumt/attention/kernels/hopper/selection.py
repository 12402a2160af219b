"""Which calls the kernels for Hopper serve. Shapes: B batch, H heads, T queries, S keys, D head size."""

import functools

import torch
from torch import Tensor

from relumt.attention.kernels.pointwise_params import Activation, PointwiseParams
from relumt.process import kernel_choice

HEAD_DIMS = (64, 128)
DROPOUT_LEVELS = 128
"""Dropout's probability is rounded to a multiple of 1/128."""
MIN_LENGTH = 512
"""Minimum number of queries and of keys.

Both passes together take 95% of the time of `pointwise_triton` for 512 of each, and 127% for 256. With a causal mask,
dropout or row stats they take less at 512, and were not measured at 256 (docs/results/hopper.md).
"""


def serves(q: Tensor, k: Tensor, params: PointwiseParams, dropout_p: float) -> bool:
    """Return whether the kernels for Hopper are wanted for a call, and serve it.

    Args:
        q: [B, H, T, D].
        k: [B, H, S, D].
        params: how products q·k become weights.
        dropout_p: probability of dropping a weight.
    """
    return (
        are_wanted(q.device)
        and can_compute(params.activation, params.bias is not None, params.factor.shape[1] > 1, q.dtype, q.shape[3])
        and serves_sizes(q, k, dropout_p)
    )


def are_wanted(device: torch.device) -> bool:
    """Return whether RELUMT_KERNELS asks for these kernels and a device can run them."""
    return kernel_choice() == "experimental" and is_hopper(device)


def can_compute(
    activation: Activation, has_bias: bool, has_factor_per_query: bool, dtype: torch.dtype, head_dim: int
) -> bool:
    """Return whether there are kernels for these calls.

    Powers exceed float16. A bias is added to scores that are scaled, for which a sentence has one factor.
    """
    if activation == "sigmoid" or head_dim not in HEAD_DIMS or (has_bias and has_factor_per_query):
        return False
    return dtype == torch.bfloat16 or (dtype == torch.float16 and activation == "relu" and not has_bias)


def serves_sizes(q: Tensor, k: Tensor, dropout_p: float) -> bool:
    """Return whether the kernels serve sizes and a dropout, which compiled code leaves open.

    TMA cannot describe an empty batch.
    """
    is_rounded_well = dropout_p == 0 or 0 < round(dropout_p * DROPOUT_LEVELS) < DROPOUT_LEVELS
    return min(q.shape[2], k.shape[2]) >= MIN_LENGTH and q.shape[0] > 0 and is_rounded_well


@functools.cache
def is_hopper(device: torch.device) -> bool:
    """Return whether a device is a GPU of compute capability 9.0."""
    is_nvidia = device.type == "cuda" and torch.version.hip is None
    return is_nvidia and torch.cuda.get_device_capability(device) == (9, 0)
