"""The operators `relumt::pointwise` and `relumt::pointwise_backward`. Shapes: B batch, H heads, T queries, S keys.

A module that implements them has `run_forward` and `run_backward`, with the arguments of the schemas below but the
last one, and what allocates their results: `new_outputs` and `new_gradients`. If there is a function `new_kept`, then
with dropout `run_forward` has one more result, which it allocates, and `run_backward` one more argument.
"""

from typing import Any

import torch
from torch import Tensor

from relumt.attention.kernels import library
from relumt.attention.kernels.double_backward import forbid_double_backward
from relumt.attention.kernels.key_bounds import key_bounds
from relumt.attention.kernels.library import kernel_module
from relumt.attention.kernels.pointwise_params import PointwiseParams

_INPUTS = """Tensor q, Tensor k, Tensor v, Tensor factor, Tensor? bias, Tensor? key_mask, Tensor? key_bounds,
    Tensor? seed, str activation, bool is_causal, float dropout_p"""
NUM_TENSORS, NUM_SHARED = 8, 11
"""How many of the inputs are tensors, and how many both directions have."""


def attend(
    q: Tensor, k: Tensor, v: Tensor, params: PointwiseParams, key_mask: Tensor | None, is_causal: bool,
    dropout_p: float, row_sums: int, dtype: torch.dtype, kernel: str,
) -> tuple[Tensor, Tensor | None, Tensor | None]:  # fmt: skip
    """Compute attention with pointwise weights.

    Args:
        q: [B, H, T, D]; for Triton float16, bfloat16 or float32, and D from 1 to 128.
        k, v: [B, H, S, D], of q's type.
        params: how products q·k become weights.
        key_mask: [B, S] bool, False for padding; None if all keys are real.
        is_causal: query i sees keys j ≤ S − T + i.
        dropout_p: probability of dropping a weight, which kernels round.
        row_sums: how many row sums to return: 0, 1 (Σ_j w_ij) or 2.
        dtype: dtype of the output.
        kernel: the module that computes it.

    Returns:
        The output [B, H, T, D]; Σ_j w_ij and Σ_j w_ij log w_ij before dropout, [B, H, T] float32 (of q's type for
        `pointwise_blocked`), or None.
    """
    seed = library.draw_seed(q.device) if dropout_p else None
    tensors = (q, k, v, params.factor, params.bias, key_mask, key_bounds(key_mask), seed)
    options = (params.activation, is_causal, dropout_p, row_sums, dtype, kernel)
    output, weight_sum, w_log_w, _ = library.call(_pointwise, _Pointwise, *tensors, *options)
    return output, weight_sum if row_sums else None, w_log_w if row_sums == 2 else None


def _forward(*inputs: Any) -> tuple[Tensor, ...]:
    *arguments, kernel = inputs
    return _without_none(inputs[0], *kernel_module(kernel).run_forward(*arguments))


def _fake_forward(*inputs: Any) -> tuple[Tensor, ...]:
    q, k, v, *_, seed = inputs[:NUM_TENSORS]
    row_sums, dtype, kernel = inputs[NUM_SHARED:]
    module = kernel_module(kernel)
    kept = [module.new_kept(q, k)] if seed is not None and hasattr(module, "new_kept") else []
    return _without_none(q, *module.new_outputs(q, v, row_sums, dtype), *kept)


def _without_none(
    q: Tensor, output: Tensor, weight_sum: Tensor | None, w_log_w: Tensor | None, kept: Tensor | None = None
) -> tuple[Tensor, ...]:
    """Return the outputs, with empty tensors for those that are not needed: no operator returns None."""
    return output, *(torch.empty(0, device=q.device) if x is None else x for x in (weight_sum, w_log_w, kept))


def _backward(*inputs: Any) -> tuple[Tensor, Tensor, Tensor]:
    kept, kernel = inputs[3], inputs[-1]
    arguments = [*inputs[:3], *inputs[4:-1], *([kept] if len(kept) else [])]
    gradients: tuple[Tensor, Tensor, Tensor] = kernel_module(kernel).run_backward(*arguments)
    return gradients


def _fake_backward(*inputs: Any) -> tuple[Tensor, Tensor, Tensor]:
    gradients: tuple[Tensor, Tensor, Tensor] = kernel_module(inputs[-1]).new_gradients(*inputs[4:7])
    return gradients


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(output[3], *inputs[:NUM_TENSORS])  # the mask, so that one that changes in between is refused
    ctx.options, ctx.row_sums, ctx.kernel = inputs[NUM_TENSORS:NUM_SHARED], inputs[NUM_SHARED], inputs[-1]
    ctx.set_materialize_grads(False)


@forbid_double_backward
def _differentiate(
    ctx: Any, grad_output: Tensor | None, grad_weight_sum: Tensor | None, grad_w_log_w: Tensor | None, _: None
) -> tuple[Tensor | None, ...]:
    kept, *saved = ctx.saved_tensors  # read once: checkpointing forbids more
    q, _, v, factor, *_ = saved
    if grad_output is None:
        grad_output = v.new_zeros(*q.shape[:3], v.shape[3])
    row_grads: list[Tensor | None] = [None, None]
    if grad_weight_sum is not None or grad_w_log_w is not None:
        grads = (grad_weight_sum, grad_w_log_w)
        for i in range(ctx.row_sums):
            row_grads[i] = q.new_zeros(q.shape[:3], dtype=factor.dtype) if grads[i] is None else grads[i]
    gradients = _pointwise_backward(grad_output, *row_grads, kept, *saved, *ctx.options, ctx.kernel)
    return *gradients, *(None,) * (NUM_SHARED + 3 - len(gradients))


class _Pointwise(torch.autograd.Function):
    """The operator with its derivatives."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[Tensor, ...]:
        outputs: tuple[Tensor, ...] = _pointwise(*inputs)
        _setup_context(ctx, inputs, outputs)
        return outputs

    backward = staticmethod(_differentiate)


_pointwise = library.register(
    f"pointwise({_INPUTS}, int row_sums, ScalarType dtype, str kernel) -> (Tensor, Tensor, Tensor, Tensor)",
    _forward, _fake_forward, _setup_context, _differentiate,
)  # fmt: skip
_pointwise_backward = library.register(
    "pointwise_backward(Tensor grad_output, Tensor? grad_weight_sum, Tensor? grad_w_log_w, Tensor kept, "
    f"{_INPUTS}, str kernel) -> (Tensor, Tensor, Tensor)",
    _backward, _fake_backward,
)  # fmt: skip
