"""Overwriting of numbers where a mask says so, without letting an infinity or a NaN there reach any result.

On a CPU this clears and sets bits: there `torch.where` and `masked_fill` take 6 to 30 times as long for a mask that is
broadcast. Compiled code uses `torch.where`, which Inductor fuses. Shapes: B batch, H heads, T queries, S keys, D head
size.
"""

from typing import Any

import torch
from torch import Tensor

from relumt.attention.transforms import is_in_torch_func

BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Bytes of a number → integer type of that size."""


def zero_padding(x: Tensor, key_mask: Tensor) -> Tensor:
    """Return keys or values x [B, H, S, D] with 0 where key_mask [B, S] is False.

    A weight of 0 does not hide a non-finite value, because 0·NaN is NaN. For the same reason, a gradient of 0 does not
    hide a non-finite key.
    """
    if torch.compiler.is_compiling():
        return x.where(key_mask[:, None, :, None], 0)
    zeroed: Tensor = _ZeroPadding.apply(x, key_mask[:, None, :, None])
    return zeroed


def fill_hidden(x: Tensor, visible: Tensor, value: float) -> Tensor:
    """Return x [B, H, T, S] with `value` where `visible` [B or 1, 1, T or 1, S] is False; its gradient there is 0."""
    if torch.compiler.is_compiling():
        return x.where(visible, value)
    filled: Tensor = _FillHidden.apply(x, visible, value)
    return filled


def overwrite(x: Tensor, keep: Tensor, value: float = 0.0) -> Tensor:
    """Return x with `value` where `keep`, which is broadcast, is False."""
    if x.is_cuda or is_in_torch_func():  # one kernel instead of several; torch < 2.11 maps over no views of bits
        return x.where(keep, value)
    integer = BITS[x.element_size()]
    kept_bits = -keep.to(integer)  # −1 has all bits set
    bits = x.view(integer) & kept_bits
    if value:
        bits |= torch.tensor(value, dtype=x.dtype, device=x.device).view(integer) & ~kept_bits
    return bits.view(x.dtype)


class _ZeroPadding(torch.autograd.Function):
    """(x, which elements to keep) → x, with 0 elsewhere.

    The backward pass costs nothing: padding has weights of 0, so the gradients that arrive for it are 0 already.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, keep: Tensor) -> Tensor:
        return overwrite(x, keep)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_forward(inputs[1])

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, _: None) -> Tensor:
        (keep,) = ctx.saved_tensors
        return tangent.where(keep, 0)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad, None


class _FillHidden(torch.autograd.Function):
    """(x, which elements to keep, value) → x, with `value` elsewhere."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, keep: Tensor, value: float) -> Tensor:
        return overwrite(x, keep, value)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, float], output: Tensor) -> None:
        ctx.save_for_backward(inputs[1])
        ctx.save_for_forward(inputs[1])

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: None) -> Tensor:
        (keep,) = ctx.saved_tensors
        return tangent.where(keep, 0)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (keep,) = ctx.saved_tensors
        return fill_hidden(grad, keep, 0.0), None, None
