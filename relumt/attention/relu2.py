"""Squared ReLU as attention weights, scaled as [RF] Eq. 6 scales ReLU. Shapes: B H T S D.

    s_ij = ReLU(q_i·k_j/√D)² / (γ √(3n_i/2)),    n_i = number of keys visible to query i

So et al. 2021 (Primer, arXiv:2109.08668) proposed the square for feed-forward layers, and Hua et al. 2022 (FLASH,
arXiv:2202.10447) for attention, with 1/n² instead of the factor here. For scores of unit variance ReLU(x)² has the mean
square E[x⁴]/2 = 3/2, so this factor keeps the variance of the output at 1/γ², as [RF]'s does for ReLU.
"""

import math

from torch import Tensor

from relumt.attention.mask import AttentionMask
from relumt.attention.relu import ReLUAttention


class SquaredReLUAttention(ReLUAttention):
    """ReLU² weights: small scores get hardly any weight, so rows are sharper than ReLU's."""

    pointwise_activation = "relu2"

    def factor(self, T: int, S: int, mask: AttentionMask, like: Tensor) -> Tensor | float:
        """Return the square root of 1/(γD√(3n/2)), since ReLU(c·x)² = c²·ReLU(x)² for c > 0."""
        factor = 1 / math.sqrt(self.options.gamma * self.head_dim)
        if self.options.scale == "none":
            return factor
        scaled: Tensor | float = factor * (mask.num_visible(T, S, like) * 1.5) ** -0.25
        return scaled

    def weights(self, scores: Tensor, mask: AttentionMask) -> Tensor:
        """Return the squared ReLU of scores [B, H, T, S] at visible keys."""
        return super().weights(scores, mask).square()
