"""Queries and keys of length 1 with a learned scale (Henry et al. 2020, arXiv:2010.04245). Shapes: B H T S D.

    q'_i = g_h √D · q_i/‖q_i‖,    k'_j = k_j/‖k_j‖,    so a mechanism's score q'_i·k'_j/√D is g_h·cos(q_i, k_j)

g_h is trained for each head; the paper has one g for all. The scale of scores is then a parameter of its own: it
depends neither on the initialization of the projections nor on the size of what they project. Adam moves it by about
the learning rate per update at most, so where it starts matters. It serves any mechanism that computes products of
queries and keys. `--attention-qk-norm` sets it, `--attention-qk-norm-scale` also g_h before training; without fairseq,
`QKNorm(H, D)(q, k)` is (q', k').
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from relumt.attention.mechanism import Mechanism
from relumt.attention.precision import at_least_float32

INITIAL_SCALE = 10.0
"""Initial g_h. The paper's log₂(L² − L) is 9.9 for sentences of L = 31 words. Random vectors of 64 components then have
scores with a standard deviation of 1.25."""


class QKNorm(nn.Module):
    """Normalizes queries and keys.

    Args:
        num_heads: H.
        head_dim: D.
        initial_scale: g before training.

    Attributes:
        scale: g of each head, [H].
    """

    def __init__(self, num_heads: int, head_dim: int, initial_scale: float = INITIAL_SCALE) -> None:
        super().__init__()
        self.head_dim = head_dim
        self.scale = nn.Parameter(torch.full((num_heads,), initial_scale))

    @classmethod
    def build(cls, mechanism: Mechanism, initial_scale: float) -> "QKNorm":
        """Return the norm for the heads of a mechanism; raise ValueError if it computes no products of q and k."""
        if not mechanism.has_weights:
            raise ValueError(f"QK norm needs products of queries and keys, which {type(mechanism).__name__} lacks")
        return cls(mechanism.num_heads, mechanism.head_dim, initial_scale)

    def forward(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """Normalize q [B, H, T, D] and k [B, H, S, D]."""
        return self.normalize_queries(q), self.normalize_keys(k)

    def normalize_queries(self, q: Tensor) -> Tensor:
        """Return q' of q [B, H, T, D]."""
        # [H] -> [H, 1, 1]
        scale = self.scale.view(-1, 1, 1) * math.sqrt(self.head_dim)
        return (F.normalize(at_least_float32(q), dim=-1) * scale).to(q.dtype)

    def normalize_keys(self, k: Tensor) -> Tensor:
        """Return k' of k [B, H, S, D]."""
        return F.normalize(at_least_float32(k), dim=-1).to(k.dtype)
