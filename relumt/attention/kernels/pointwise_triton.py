"""Attention with pointwise weights in Triton. Shapes: B batch, H heads, T queries, S keys, D head size.

    s_ij = f_i·(q_i·k_j) + b_i,    w_ij = φ(s_ij) for visible keys, else 0,    out_i = Σ_j w_ij v_j

φ is a power of ReLU or the sigmoid. There is no softmax normalizer, so every block of keys contributes independently:
no row maximum, no rescaling, and only q, k and v are saved for the backward pass. The row sums that the regularizer
needs, Σ_j w_ij and Σ_j w_ij log w_ij, are accumulated in the same loop. The backward pass computes the weights again,
with the same dropout: one kernel loops over keys for q's gradient, one over queries for those of k and v.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from relumt.attention.kernels.key_bounds import key_bytes
from relumt.attention.kernels.library import use_tensor_device
from relumt.attention.kernels.pointwise_launch_configs import KernelName, call_kind, shared_memory, table_config
from relumt.attention.kernels.pointwise_params import Activation, exponent, is_plain
from relumt.attention.kernels.pointwise_triton_backward import backward_dkdv, backward_dq
from relumt.attention.kernels.pointwise_triton_forward import forward
from relumt.attention.kernels.triton_arguments import (
    Dropout,
    Padding,
    PointwiseKernelConfig,
    RowSums,
    next_power_of_2,
    shape_per_query,
    strided,
)


def round_dropout(dropout_p: float) -> float:
    """Return a probability as dropout of tiles draws it: a multiple of 1/256, which is 0 only for 0, and never 1."""
    return min(max(round(dropout_p * 256), 1), 255) / 256 if dropout_p else 0.0


def new_outputs(q: Tensor, v: Tensor, row_sums: int, dtype: torch.dtype) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Allocate the output and, if they are needed, the row sums."""
    B, H, T, D = q.shape
    # Laid out as [B, T, H, D], so that concatenating the heads needs no copy.
    output = torch.empty(B, T, H, D, dtype=dtype, device=q.device).transpose(1, 2)  # -> [B, H, T, D]
    weight_sum, w_log_w = (q.new_empty(B, H, T, dtype=torch.float32) if row_sums > i else None for i in range(2))
    return output, weight_sum, w_log_w


def new_gradients(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Allocate the gradients."""
    return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)


@use_tensor_device
def run_forward(
    q: Tensor, k: Tensor, v: Tensor, factor: Tensor, bias: Tensor | None, key_mask: Tensor | None,
    key_bounds: Tensor | None, seed: Tensor | None, activation: Activation, is_causal: bool, dropout_p: float,
    row_sums: int, dtype: torch.dtype,
) -> tuple[Tensor, Tensor | None, Tensor | None]:  # fmt: skip
    """Compute what `pointwise_operator.attend` returns.

    Args:
        q, k, v, key_mask, is_causal, dropout_p, row_sums, dtype: as there; `round_dropout` rounds `dropout_p`.
        activation, factor, bias: as in `PointwiseParams`.
        key_bounds: of `key_bounds.key_bounds`; None without a key mask.
        seed: of the dropout, [] int64; None without dropout.
    """
    output, weight_sum, w_log_w = new_outputs(q, v, row_sums, dtype)
    inputs = _inputs(q, k, v, factor, bias, key_mask, key_bounds, seed, dropout_p)
    options = _options(factor, bias, activation, is_causal, dropout_p, row_sums)
    _launch("forward", forward, q, options, [*inputs, strided(output), RowSums(weight_sum, w_log_w)])
    return output, weight_sum, w_log_w


@use_tensor_device
def run_backward(
    grad_output: Tensor, grad_weight_sum: Tensor | None, grad_w_log_w: Tensor | None, q: Tensor, k: Tensor, v: Tensor,
    factor: Tensor, bias: Tensor | None, key_mask: Tensor | None, key_bounds: Tensor | None, seed: Tensor | None,
    activation: Activation, is_causal: bool, dropout_p: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Return the gradients of q, k and v for those of the results of `run_forward`; None for row sums not needed."""
    grad_output = grad_output.to(v.dtype)  # the kernels multiply it by v, and tl.dot wants equal types
    row_grads = RowSums(*(None if x is None else x.float().contiguous() for x in (grad_weight_sum, grad_w_log_w)))
    grad_q, grad_k, grad_v = gradients = new_gradients(q, k, v)
    inputs = [*_inputs(q, k, v, factor, bias, key_mask, key_bounds, seed, dropout_p), strided(grad_output), row_grads]
    row_sums = sum(x is not None for x in row_grads)
    options = _options(factor, bias, activation, is_causal, dropout_p, row_sums)
    _launch("backward_dq", backward_dq, q, options, [*inputs, strided(grad_q)])
    _launch("backward_dkdv", backward_dkdv, k, options, [*inputs, strided(grad_k), strided(grad_v)])
    return gradients


def _options(
    factor: Tensor, bias: Tensor | None, activation: Activation, is_causal: bool, dropout_p: float, row_sums: int
) -> dict[str, Any]:
    """Return the fields of `PointwiseKernelConfig` that do not follow from q, k and v."""
    return {
        "activation": activation, "exponent": exponent(activation), "factor_shape": shape_per_query(factor),
        "has_bias": bias is not None, "bias_shape": 0 if bias is None else shape_per_query(bias),
        "is_causal": is_causal, "has_dropout": dropout_p > 0, "row_sums": row_sums,
    }  # fmt: skip


def _inputs(
    q: Tensor, k: Tensor, v: Tensor, factor: Tensor, bias: Tensor | None, key_mask: Tensor | None,
    key_bounds: Tensor | None, seed: Tensor | None, dropout_p: float,
) -> list[Any]:  # fmt: skip
    """Return the leading arguments of every kernel, which are the same for all three."""
    _, H, T, _ = q.shape
    return [
        strided(q), strided(k), strided(v), factor.contiguous(), None if bias is None else bias.contiguous(),
        Padding(key_bytes(key_mask), key_bounds), Dropout(round_dropout(dropout_p), seed), H, T, k.shape[2],
    ]  # fmt: skip


def _launch(name: KernelName, kernel: Any, x: Tensor, options: dict[str, Any], arguments: Sequence[Any]) -> None:
    """Launch a kernel whose programs hold blocks of x [B, H, length, D], which is q or k."""
    B, H, length, D = x.shape
    plain = is_plain(options["activation"], options["has_bias"], options["row_sums"])
    kind = call_kind(x, options["has_dropout"], plain)
    block_t, block_s, num_warps, num_stages = table_config(name, kind, shared_memory(x.device))
    config = PointwiseKernelConfig(D, max(16, next_power_of_2(D)), block_t, block_s, **options)
    blocks = math.ceil(length / (block_s if name == "backward_dkdv" else block_t))
    kernel[B * H, blocks](*arguments, config, num_warps=num_warps, num_stages=num_stages)
