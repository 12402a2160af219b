"""Statistics of attention rows. Shapes: B batch, H heads, T queries, S keys.

A row consists of the weights s_i1 … s_iS that query i gives to its visible keys. Two sums per row are enough to compute
the entropy of the normalized row p = s/Σs, so a fused kernel can provide what the regularizer needs:
with t = Σ_j s_ij and e = Σ_j s_ij log s_ij,  H(p_i) = log t − e/t.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from relumt.attention.precision import at_least_float32

NULL_WEIGHT_SUM = 1e-6
"""A row whose weights sum to no more than this attends to nothing: a null row ([RL] §5.2)."""


def finite_log(weights: Tensor) -> Tensor:
    """Return log s for s ≥ 0 in at least float32, finite at s = 0 with a finite derivative.

    The derivative of log at 0 is infinite and would become a NaN when multiplied with ReLU's 0. Adding the smallest
    positive normal number changes no other value; torch.xlogy and clamp take several times as long on a CPU.
    """
    return (weights + torch.finfo(weights.dtype).tiny).log()


@dataclass(frozen=True)
class RowStats:
    """Two sums of every row of non-negative weights.

    Attributes:
        weight_sum: Σ_j s_ij, [B, H, T].
        weight_log_weight_sum: Σ_j s_ij log s_ij (natural logarithm, 0 log 0 = 0), [B, H, T].
        num_keys: n_i, the number of keys visible to query i, [B or 1, 1, T or 1].
    """

    weight_sum: Tensor
    weight_log_weight_sum: Tensor
    num_keys: Tensor

    @classmethod
    def from_weights(cls, weights: Tensor, num_keys: Tensor) -> "RowStats":
        """Return the statistics of `weights` [B, H, T, S], differentiable also where a weight is 0."""
        weights = at_least_float32(weights)
        return cls(weights.sum(-1), (weights * finite_log(weights)).sum(-1), num_keys)

    @property
    def is_null(self) -> Tensor:
        """Which rows are null, [B, H, T] bool."""
        return self.weight_sum <= NULL_WEIGHT_SUM

    @property
    def log_weight_sum(self) -> Tensor:
        """log Σ_j s_ij, [B, H, T]; 0 for null rows, with gradient 0."""
        return self._safe_weight_sum.log()

    @property
    def entropy(self) -> Tensor:
        """H(p_i) in nats, [B, H, T]; 0 for null rows, with gradient 0."""
        weight_log_weight_sum = self.weight_log_weight_sum.masked_fill(self.is_null, 0.0)
        return self.log_weight_sum - weight_log_weight_sum / self._safe_weight_sum

    @property
    def _safe_weight_sum(self) -> Tensor:
        return self.weight_sum.masked_fill(self.is_null, 1.0)
