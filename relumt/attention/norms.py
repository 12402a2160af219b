"""Norms over the concatenated heads, [RL] Eq. 4–5. Shapes: T queries, B batch, E = H·D.

    RMSNorm(z)   = g ⊙ z/RMS(z),    RMS(z) = √(mean z² + ε)
    GatedNorm(z) = σ(w ⊙ z) ⊙ norm(z)

All compute in at least float32: their input is unbounded, and RMSNorm cancels any scale well above √ε = 1e-4.

With its statistics and gate held at their values for some z, each is a linear map (and LayerNorm's bias): `map_at(z)`.
"""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from relumt.attention.precision import at_least_float32
from relumt.attention.transforms import is_exporting

EPSILON = 1e-8
"""Added to mean z², as in the authors' code: a token whose heads are all null gives 0 with a finite gradient."""


class HeadMap(NamedTuple):
    """A linear map of the concatenated heads of each query: gain ⊙ (z − mean z), gain ⊙ z, or z itself.

    Attributes:
        gain: [T, B, E]; None for the identity.
        subtracts_mean: whether the mean over E is subtracted first.
    """

    gain: Tensor | None = None
    subtracts_mean: bool = False


class RMSNorm(nn.RMSNorm):
    """z/RMS(z) ⊙ g over the last dimension; g is initialized to 1."""

    def __init__(self, size: int) -> None:
        super().__init__(size, eps=EPSILON)

    def forward(self, z: Tensor) -> Tensor:
        """Normalize z [T, B, E] → [T, B, E], at least float32."""
        z = at_least_float32(z)
        if is_exporting():
            # The same with 1 for ε: onnxscript leaves out the addition of 1e-8, and null rows would be 0/0.
            scaled = z / math.sqrt(EPSILON)
            return scaled * (scaled.square().mean(-1, keepdim=True) + 1).rsqrt() * self.weight.to(z.dtype)
        return F.rms_norm(z, self.normalized_shape, self.weight.to(z.dtype), self.eps)

    def map_at(self, z: Tensor) -> HeadMap:
        """Return the linear map that the norm is if RMS(z) is held fixed."""
        z = at_least_float32(z)
        inverse = (z.square().mean(-1, keepdim=True) + EPSILON).rsqrt()
        return HeadMap(inverse * self.weight.to(z.dtype), subtracts_mean=False)


class RandomGainRMSNorm(RMSNorm):
    """RMSNorm whose g has Glorot's uniform initialization for fan-in and fan-out E: U(−√(3/E), √(3/E))."""

    def reset_parameters(self) -> None:
        """Initialize g."""
        bound = math.sqrt(3 / len(self.weight))
        nn.init.uniform_(self.weight, -bound, bound)


class LayerNorm(nn.LayerNorm):
    """(z − mean)/deviation ⊙ g + b over the last dimension; g is initialized to 1 and b to 0."""

    def __init__(self, size: int) -> None:
        super().__init__(size)

    def forward(self, z: Tensor) -> Tensor:
        """Normalize z [T, B, E] → [T, B, E], at least float32."""
        z = at_least_float32(z)
        return F.layer_norm(z, self.normalized_shape, self.weight.to(z.dtype), self.bias.to(z.dtype), self.eps)

    def map_at(self, z: Tensor) -> HeadMap:
        """Return the linear map that the norm is, apart from its bias, if the deviation of z is held fixed."""
        z = at_least_float32(z)
        inverse = (z.var(-1, unbiased=False, keepdim=True) + self.eps).rsqrt()
        return HeadMap(inverse * self.weight.to(z.dtype), subtracts_mean=True)


class GatedNorm(nn.Module):
    """σ(w ⊙ z) ⊙ norm(z).

    The paper does not print the initialization of w. Its authors' code leaves it to TensorFlow, whose Glorot
    initialization of a vector of length E is U(−√(3/E), √(3/E)).

    Args:
        size: E.
        norm: the norm of z, over E.
    """

    def __init__(self, size: int, norm: RMSNorm | LayerNorm) -> None:
        super().__init__()
        self.norm = norm
        self.gate = nn.Parameter(torch.empty(size))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialize w; the norm initializes itself."""
        bound = math.sqrt(3 / len(self.gate))
        nn.init.uniform_(self.gate, -bound, bound)

    def forward(self, z: Tensor) -> Tensor:
        """Normalize and gate z [T, B, E] → [T, B, E], at least float32."""
        z = at_least_float32(z)
        gate = torch.sigmoid(z * self.gate.to(z.dtype))  # before the norm: autograd's order of sums depends on it
        gated: Tensor = gate * self.norm(z)
        return gated

    def map_at(self, z: Tensor) -> HeadMap:
        """Return the linear map that gate and norm are if the gate's value and the norm's statistic are held fixed."""
        z = at_least_float32(z)
        gate = torch.sigmoid(z * self.gate.to(z.dtype))
        gain, subtracts_mean = self.norm.map_at(z)
        assert gain is not None  # every norm has one
        return HeadMap(gate * gain, subtracts_mean)
