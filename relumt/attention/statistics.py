"""Measures of attention rows. Shapes: B batch, H heads, T queries, S keys.

A row is the weights s_i1 … s_iS that query i gives to the keys it sees. Two numbers a row are enough for the
entropy of the normalised row p = s/Σs, which is what lets a fused kernel serve the regulariser:
with t = Σ_j s_ij and e = Σ_j s_ij log s_ij,  H(p_i) = log t − e/t.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from relumt.attention.precision import at_least_float32

NULL_TOTAL = 1e-6
"""A row whose weights sum to no more than this gives nothing: a null row ([RL] §5.2)."""


def finite_log(weights: Tensor) -> Tensor:
    """log s for s ≥ 0 of float32 or more, finite for s = 0: the infinite slope there times ReLU's 0 would be a NaN.

    A least number is added, which changes nothing else: torch.xlogy and clamp take several times as long on a CPU.
    """
    return (weights + torch.finfo(weights.dtype).tiny).log()


@dataclass(frozen=True)
class RowStatistics:
    """Two sums of every row of non-negative weights.

    Attributes:
        total: Σ_j s_ij, [B, H, T].
        s_log_s: Σ_j s_ij log s_ij (natural logarithm, 0 log 0 = 0), [B, H, T].
        seen: n_i, the number of keys query i sees, [B or 1, 1, T or 1].
    """

    total: Tensor
    s_log_s: Tensor
    seen: Tensor

    @classmethod
    def of(cls, weights: Tensor, seen: Tensor) -> "RowStatistics":
        """Statistics of `weights`, [B, H, T, S], differentiable also where a weight is 0."""
        weights = at_least_float32(weights)
        return cls(weights.sum(-1), (weights * finite_log(weights)).sum(-1), seen)

    @property
    def null(self) -> Tensor:
        """Which rows are null, [B, H, T] bool."""
        return self.total <= NULL_TOTAL

    @property
    def log_total(self) -> Tensor:
        """log Σ_j s_ij, [B, H, T]; 0 for null rows, with gradient 0."""
        return self._safe_total.log()

    @property
    def entropy(self) -> Tensor:
        """H(p_i) in nats, [B, H, T]; 0 for null rows, with gradient 0."""
        s_log_s = self.s_log_s.masked_fill(self.null, 0.0)
        return self.log_total - s_log_s / self._safe_total

    @property
    def _safe_total(self) -> Tensor:
        return self.total.masked_fill(self.null, 1.0)
