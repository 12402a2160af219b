"""The operators `relumt::inhibitor` and `relumt::inhibitor_backward`. Shapes: B H T S D, V value size.

A module that implements them has `run_forward` and `run_backward`, with the arguments of the schemas below but the
last one, and what allocates results like theirs: `new_output` and `new_gradients`.
"""

from typing import Any

import torch
from torch import Tensor

from relumt.attention.kernels import library
from relumt.attention.kernels.double_backward import forbid_double_backward
from relumt.attention.kernels.key_bounds import key_bounds
from relumt.attention.kernels.library import kernel_module
from relumt.attention.mask import AttentionMask

_INPUTS = """Tensor q, Tensor k, Tensor v, Tensor shift, Tensor? key_mask, Tensor? key_bounds, Tensor? attn_mask,
    Tensor? dropped, Tensor? seed, float gamma, bool is_causal, float dropout_p"""
NUM_TENSORS, NUM_SHARED = 9, 12
"""How many of the inputs are tensors, and how many both directions have."""


def attend(
    q: Tensor, k: Tensor, v: Tensor, gamma: float, shift: Tensor, mask: AttentionMask, dropped: Tensor | None,
    dropout_p: float, half: bool, kernel: str,
) -> Tensor:  # fmt: skip
    """Compute [IN] Eq. 4, [B, H, T, V].

    Args:
        q: [B, H, T, D]; for Triton float32, as all tensors.
        k: [B, H, S, D].
        v: [B, H, S, V].
        gamma: γ, which divides distances.
        shift: α of each head, [H, 1, 1].
        mask: what each query may attend to; Triton knows no `attn_mask`.
        dropped: pairs that dropout drops, [B, H, T, S] bool, for Numba.
        dropout_p: probability of dropping a pair, for Triton; the remaining ones are not rescaled.
        half: whether the forward pass may use half precision, which clamps q and k to ±65,504 and v to an eighth of it.
        kernel: the module that computes it.
    """
    seed = library.draw_seed(q.device) if dropout_p else None
    tensors = (q, k, v, shift, mask.key_mask, key_bounds(mask.key_mask), mask.attn_mask, dropped, seed)
    options = (gamma, mask.is_causal, dropout_p, half, kernel)
    output: Tensor = library.call(_inhibitor, _Inhibitor, *tensors, *options)
    return output


def _forward(*inputs: Any) -> Tensor:
    *arguments, kernel = inputs
    output: Tensor = kernel_module(kernel).run_forward(*arguments)
    return output


def _fake_forward(*inputs: Any) -> Tensor:
    q, _, v, *_, kernel = inputs
    output: Tensor = kernel_module(kernel).new_output(q, v)
    return output


def _backward(*inputs: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    *arguments, kernel = inputs
    gradients: tuple[Tensor, Tensor, Tensor, Tensor] = kernel_module(kernel).run_backward(*arguments)
    return gradients


def _fake_backward(*inputs: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    gradients: tuple[Tensor, Tensor, Tensor, Tensor] = kernel_module(inputs[-1]).new_gradients(*inputs[1:5])
    return gradients


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:NUM_TENSORS])  # the masks, so that one that changes in between is refused
    ctx.options, ctx.kernel = inputs[NUM_TENSORS:NUM_SHARED], inputs[-1]


@forbid_double_backward
def _differentiate(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
    gradients = _inhibitor_backward(grad_output, *ctx.saved_tensors, *ctx.options, ctx.kernel)
    return *gradients, *(None,) * (NUM_SHARED + 2 - len(gradients))


class _Inhibitor(torch.autograd.Function):
    """The operator with its derivatives."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        output: Tensor = _inhibitor(*inputs)
        _setup_context(ctx, inputs, output)
        return output

    backward = staticmethod(_differentiate)


_inhibitor = library.register(
    f"inhibitor({_INPUTS}, bool half, str kernel) -> Tensor", _forward, _fake_forward, _setup_context, _differentiate
)
_inhibitor_backward = library.register(
    f"inhibitor_backward(Tensor grad_output, {_INPUTS}, str kernel) -> (Tensor, Tensor, Tensor, Tensor)",
    _backward, _fake_backward,
)  # fmt: skip
