"""A linear layer whose weights and inputs are integers, and whose sums of products are exact.

A sum of I products of b-bit integers is smaller than I·4^(b−1), 2^38 for I = 256 and b = 16: it needs an accumulator of
64 bits. PyTorch has no fast integer products on a CPU, so they are computed in float64. This is exact in any order of
summation, because float64 represents every integer up to 2^53; the layer refuses sizes that could exceed it.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from relumt.quantized.integers import largest_integer, quantize, scale_for, signed_width

EXACT_LIMIT = 2**53
"""float64 represents every integer up to this absolute value."""

BIAS_LIMIT = 2**48
"""Bound of the bias in units of the product's scale; larger than any sum of products that the layer allows."""


class IntegerLinear(nn.Module):
    """x ↦ (round(x / input_scale) @ Wᵀ + bias) · input_scale · weight_scale, with W and bias in integers.

    Args:
        in_features: I.
        out_features: O.
        has_bias: whether a bias is added.
        bits: width b of weights and inputs.

    Attributes:
        weight: [O, I] int16.
        bias: [O] int64, in units of input_scale·weight_scale; None without a bias.
        input_scale, weight_scale: [] float64, one scale for all components.

    Raises:
        ValueError: the sums could exceed what float64 represents exactly.
    """

    weight: Tensor
    bias: Tensor | None
    input_scale: Tensor
    weight_scale: Tensor

    def __init__(self, in_features: int, out_features: int, has_bias: bool, bits: int) -> None:
        super().__init__()
        self.in_features, self.out_features, self.bits = in_features, out_features, bits
        if self.largest_sum + BIAS_LIMIT >= EXACT_LIMIT:
            raise ValueError(f"sums of {in_features} products of {bits} bits are not exact in float64; use fewer bits")
        self.register_buffer("weight", torch.zeros(out_features, in_features, dtype=torch.int16))
        self.register_buffer("bias", torch.zeros(out_features, dtype=torch.int64) if has_bias else None)
        self.register_buffer("input_scale", torch.ones((), dtype=torch.float64))
        self.register_buffer("weight_scale", torch.ones((), dtype=torch.float64))

    @property
    def largest_sum(self) -> int:
        """The largest absolute value of a sum of products."""
        return self.in_features * largest_integer(self.bits) ** 2

    def accumulator_width(self) -> int:
        """Return the bits that a signed accumulator of the products and the bias needs at worst."""
        bias = 0 if self.bias is None else int(self.bias.abs().max())
        return signed_width(self.largest_sum + bias)

    @torch.no_grad()
    def quantize_from(self, original: nn.Linear, largest_input: Tensor) -> None:
        """Take the weights of a float layer whose inputs have at most this absolute value, [] float."""
        self.input_scale.copy_(scale_for(largest_input, self.bits))
        self.weight_scale.copy_(scale_for(original.weight.abs().max(), self.bits))
        self.weight.copy_(quantize(original.weight, self.weight_scale, self.bits))
        if self.bias is not None:
            bias = (original.bias.double() / (self.input_scale * self.weight_scale)).round()
            self.bias.copy_(bias.clamp(-BIAS_LIMIT, BIAS_LIMIT))

    def forward(self, x: Tensor) -> Tensor:
        """Map x [..., I] in float to [..., O] in the same dtype."""
        bias = None if self.bias is None else self.bias.double()
        sums = F.linear(quantize(x, self.input_scale, self.bits), self.weight.double(), bias)
        return (sums * (self.input_scale * self.weight_scale)).to(x.dtype)

    def extra_repr(self) -> str:
        """Describe the layer as `nn.Linear` does."""
        return f"in_features={self.in_features}, out_features={self.out_features}, bits={self.bits}"
