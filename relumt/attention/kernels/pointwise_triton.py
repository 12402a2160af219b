"""Attention with pointwise weights in Triton. Shapes: B batch, H heads, T queries, S keys, D head size.

    s_ij = f_i·(q_i·k_j) + b_i,    w_ij = φ(s_ij) for visible keys, else 0,    out_i = Σ_j w_ij v_j

φ is ReLU or the sigmoid. There is no softmax normalizer, so every block of keys contributes independently: no row
maximum, no rescaling, and only q, k and v are saved for the backward pass. The row sums that the regularizer needs,
Σ_j w_ij and Σ_j w_ij log w_ij, are accumulated in the same loop. The backward pass computes the weights again, with the
same dropout: one kernel loops over keys for q's gradient, one over queries for those of k and v.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import triton
from torch import Tensor
from triton import OutOfResources

from relumt.attention.kernels.current_device import use_tensor_device
from relumt.attention.kernels.double_backward import forbid_double_backward
from relumt.attention.kernels.dropout_seed import draw_seed
from relumt.attention.kernels.key_bounds import key_bounds, key_bytes
from relumt.attention.kernels.pointwise_launch_configs import (
    CallKind,
    KernelName,
    LaunchConfig,
    call_kind,
    shared_memory,
    table_config,
)
from relumt.attention.kernels.pointwise_params import PointwiseParams
from relumt.attention.kernels.pointwise_triton_backward import backward_dkdv, backward_dq
from relumt.attention.kernels.pointwise_triton_forward import forward

logger = logging.getLogger(__name__)

MIN_TILE = 16
"""Dropout's random numbers and the products of tensor cores need as much."""

FITTING: dict[tuple[KernelName, CallKind, torch.device], LaunchConfig] = {}
"""The largest configurations that a GPU did not refuse, where they are smaller than the table's."""


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    params: PointwiseParams,
    key_mask: Tensor | None,
    is_causal: bool,
    dropout_p: float,
    need_row_stats: bool,
    dtype: torch.dtype,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Compute attention with pointwise weights.

    Args:
        q: [B, H, T, D] float16, bfloat16 or float32; D from 1 to 128.
        k, v: [B, H, S, D], of q's type.
        params: how products q·k become weights.
        key_mask: [B, S] bool, False for padding; None if all keys are real.
        is_causal: query i sees keys j ≤ S − T + i.
        dropout_p: probability of dropping a weight.
        need_row_stats: whether to return the row sums.
        dtype: dtype of the output.

    Returns:
        The output [B, H, T, D]; Σ_j w_ij and Σ_j w_ij log w_ij before dropout, [B, H, T] float32, or None.
    """
    seed = draw_seed(q.device) if dropout_p else None
    call = _Call(params, key_bytes(key_mask), key_bounds(key_mask), is_causal, dropout_p, seed, need_row_stats, dtype)
    result: tuple[Tensor, Tensor | None, Tensor | None] = _Attend.apply(q, k, v, call)
    return result


@dataclass(frozen=True)
class _Call:
    """What both directions need besides q, k and v."""

    params: PointwiseParams
    key_mask: Tensor | None
    key_bounds: Tensor | None
    is_causal: bool
    dropout_p: float
    seed: Tensor | None
    need_row_stats: bool
    dtype: torch.dtype

    def inputs(self, q: Tensor, k: Tensor, v: Tensor) -> list[Any]:
        """Return the leading arguments of every kernel, which are the same for all three."""
        B, H, T, _ = q.shape
        factor = self.params.factor.expand(B, T)
        bias = None if self.params.bias is None else self.params.bias.expand(B, T)
        return [
            *_with_strides(q), *_with_strides(k), *_with_strides(v), self.key_mask, self.key_bounds,
            factor, *factor.stride(), bias, *((0, 0) if bias is None else bias.stride()),
            H, T, k.shape[2], self.dropout_p, self.seed,
        ]  # fmt: skip

    def launch(self, name: KernelName, kernel: Any, x: Tensor, arguments: Sequence[Any]) -> None:
        """Launch a kernel whose programs hold blocks of x [B, H, length, D], which is q or k.

        Blocks that do not fit the GPU are halved until they do; OutOfResources if the smallest ones do not fit either.
        """
        B, H, length, D = x.shape
        constants = {
            "D": D, "BLOCK_D": max(16, triton.next_power_of_2(D)), "ACTIVATION": self.params.activation,
            "CAUSAL": self.is_causal, "ROW_STATS": self.need_row_stats, "DROPOUT": self.dropout_p > 0,
        }  # fmt: skip

        kind = call_kind(x, self.dropout_p, self.params.is_plain(self.need_row_stats))
        config = FITTING.get((name, kind, x.device)) or table_config(name, kind, shared_memory(x.device))
        while True:
            block = config.BLOCK_S if name == "backward_dkdv" else config.BLOCK_T
            grid = (B * H, triton.cdiv(length, block))
            try:
                kernel[grid](*arguments, **constants, **config._asdict())
                return
            except OutOfResources as error:
                if (smaller := halve_larger_tile(config)) == config:
                    raise
                logger.info("%s does not fit the GPU (%s); trying %s", config, error, smaller)
                config = FITTING[name, kind, x.device] = smaller


def halve_larger_tile(config: LaunchConfig) -> LaunchConfig:
    """Halve the larger dimension of the tiles, of two equal ones the keys'; neither below MIN_TILE."""
    if config.BLOCK_T > config.BLOCK_S:
        return config._replace(BLOCK_T=config.BLOCK_T // 2)
    return config._replace(BLOCK_S=max(MIN_TILE, config.BLOCK_S // 2))


class _Attend(torch.autograd.Function):
    """(q, k, v, call) → (output, Σ w, Σ w log w)."""

    @staticmethod
    @use_tensor_device
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, call: _Call) -> tuple[Tensor, Tensor | None, Tensor | None]:
        B, H, T, D = q.shape
        ctx.save_for_backward(q, k, v, call.key_mask)  # the mask, so that one that changes in between is refused
        ctx.call = call
        ctx.set_materialize_grads(False)
        # Laid out as [B, T, H, D], so that concatenating the heads needs no copy.
        output = torch.empty(B, T, H, D, dtype=call.dtype, device=q.device).transpose(1, 2)  # -> [B, H, T, D]
        weight_sum, w_log_w = (
            q.new_empty(B, H, T, dtype=torch.float32) if call.need_row_stats else None for _ in range(2)
        )
        call.launch("forward", forward, q, [*call.inputs(q, k, v), *_with_strides(output), weight_sum, w_log_w])
        return output, weight_sum, w_log_w

    @staticmethod
    @use_tensor_device
    @forbid_double_backward
    def backward(
        ctx: Any, grad_output: Tensor | None, grad_weight_sum: Tensor | None, grad_w_log_w: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        q, k, v, _ = ctx.saved_tensors
        call: _Call = ctx.call
        B, H, T, _ = q.shape
        if grad_output is None:
            grad_output = torch.zeros_like(q)
        grad_output = grad_output.to(v.dtype)  # the kernels multiply it by v, and tl.dot wants equal types
        if call.need_row_stats:
            grad_weight_sum, grad_w_log_w = (
                q.new_zeros(B, H, T, dtype=torch.float32) if grad is None else grad.float().contiguous()
                for grad in (grad_weight_sum, grad_w_log_w)
            )
        grad_q, grad_k, grad_v = (torch.empty_like(x) for x in (q, k, v))
        inputs = [*call.inputs(q, k, v), *_with_strides(grad_output), grad_weight_sum, grad_w_log_w]
        call.launch("backward_dq", backward_dq, q, [*inputs, *_with_strides(grad_q)])
        call.launch("backward_dkdv", backward_dkdv, k, [*inputs, *_with_strides(grad_k), *_with_strides(grad_v)])
        return grad_q, grad_k, grad_v, None


def _with_strides(x: Tensor) -> tuple[Any, ...]:
    return x, *x.stride()
