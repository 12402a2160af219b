"""Norms over the concatenated heads, [RL] Eq. 4–5. Shapes: T queries, B batch, E = H·D.

    RMSNorm(z)   = g ⊙ z/RMS(z),    RMS(z) = √(mean z²)
    GatedNorm(z) = σ(w ⊙ z) ⊙ norm(z)

All compute in at least float32: their input is unbounded, and RMSNorm cancels any scale well above √ε = 1e-4.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from relumt.attention.precision import at_least_float32

EPSILON = 1e-8
"""Added to mean z², as in the authors' code: a token whose heads are all null gives 0 with a finite gradient."""


class RMSNorm(nn.RMSNorm):
    """z/RMS(z) ⊙ g over the last dimension; g is initialized to 1."""

    def __init__(self, size: int) -> None:
        super().__init__(size, eps=EPSILON)

    def forward(self, z: Tensor) -> Tensor:
        """Normalize z [T, B, E] → [T, B, E], at least float32."""
        z = at_least_float32(z)
        return F.rms_norm(z, self.normalized_shape, self.weight.to(z.dtype), self.eps)


class LayerNorm(nn.LayerNorm):
    """(z − mean)/deviation ⊙ g + b over the last dimension; g is initialized to 1 and b to 0."""

    def __init__(self, size: int) -> None:
        super().__init__(size)

    def forward(self, z: Tensor) -> Tensor:
        """Normalize z [T, B, E] → [T, B, E], at least float32."""
        z = at_least_float32(z)
        return F.layer_norm(z, self.normalized_shape, self.weight.to(z.dtype), self.bias.to(z.dtype), self.eps)


class GatedNorm(nn.Module):
    """σ(w ⊙ z) ⊙ norm(z).

    The paper does not print the initialization of w. Its authors' code leaves it to TensorFlow, whose Glorot
    initialization of a vector of length E is U(−√(3/E), √(3/E)).

    Args:
        size: E.
        norm: the norm of z, over E.
    """

    def __init__(self, size: int, norm: nn.Module) -> None:
        super().__init__()
        self.norm = norm
        bound = math.sqrt(3 / size)
        self.gate = nn.Parameter(torch.empty(size).uniform_(-bound, bound))

    def forward(self, z: Tensor) -> Tensor:
        """Normalize and gate z [T, B, E] → [T, B, E], at least float32."""
        z = at_least_float32(z)
        gate = torch.sigmoid(z * self.gate.to(z.dtype))  # before the norm: autograd's order of sums depends on it
        gated: Tensor = gate * self.norm(z)
        return gated
