"""Measures of attention rows. Shapes: B batch, H heads, T queries, S keys.

A row is the weights s_i1 … s_iS that query i gives to the keys it sees. Two numbers a row are enough for the
entropy of the normalised row p = s/Σs, which is what lets a fused kernel serve the regulariser:
with t = Σ_j s_ij and e = Σ_j s_ij log s_ij,  H(p_i) = log t − e/t.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from relumt.attention.precision import at_least_float32

NULL_WEIGHT_SUM = 1e-6
"""A row whose weights sum to no more than this gives nothing: a null row ([RL] §5.2)."""


def finite_log(weights: Tensor) -> Tensor:
    """log s for s ≥ 0 of float32 or more, finite for s = 0: the infinite slope there times ReLU's 0 would be a NaN.

    A least number is added, which changes nothing else: torch.xlogy and clamp take several times as long on a CPU.
    """
    return (weights + torch.finfo(weights.dtype).tiny).log()


@dataclass(frozen=True)
class RowStats:
    """Two sums of every row of non-negative weights.

    Attributes:
        weight_sum: Σ_j s_ij, [B, H, T].
        weight_log_weight_sum: Σ_j s_ij log s_ij (natural logarithm, 0 log 0 = 0), [B, H, T].
        num_keys: n_i, the number of keys query i sees, [B or 1, 1, T or 1].
    """

    weight_sum: Tensor
    weight_log_weight_sum: Tensor
    num_keys: Tensor

    @classmethod
    def from_weights(cls, weights: Tensor, num_keys: Tensor) -> "RowStats":
        """Statistics of `weights`, [B, H, T, S], differentiable also where a weight is 0."""
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
