"""The regularizer of [RF] §4.2, Eq. 7, computed from row statistics alone. Shapes: B batch, H heads, T queries.

    L = λ₁·f(log Σ_j s_ij) + λ₂·max(H(p_i) − C_i, 0),    p_i = s_i/Σ_j s_ij,    C_i = c·log n_i,  c = 0.7

The first term pulls the sum of each row toward 1, the second its entropy below a bound. In the paper f(x) = |x|; the
printed equation lacks the bars, but the text has them. `NORM_PENALTIES` has other shapes of f. Each term is the mean
over heads and real (not padded) queries, then over the model's attentions. A null row (Σs ≤ 1e-6) has neither a
logarithm nor p: it contributes 0 and is counted.

λ₁ and λ₂ are constant in the paper; `linear_weight` changes them linearly to a final value during training.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial

import torch
from torch import Tensor

from relumt.attention import RowStats

Penalty = Callable[[Tensor], Tensor]


def excess(x: Tensor, margin: float) -> Tensor:
    """Return max(|x| − margin, 0): sums between e^−margin and e^margin are free."""
    return (x.abs() - margin).clamp(min=0)


NORM_PENALTIES: dict[str, Callable[[float], Penalty]] = {
    "abs": lambda margin: torch.abs,
    "square": lambda margin: torch.square,
    "hinge": lambda margin: partial(excess, margin=margin),
}
"""Name of a shape of f → a function that returns f for a margin, which only "hinge" uses."""


def linear_weight(initial: float, final: float | None, num_updates: int, last_update: int) -> float:
    """Return the weight after `num_updates`: linear from `initial` to `final` at `last_update`, then constant."""
    return initial if final is None else initial + (final - initial) * min(num_updates / last_update, 1.0)


@dataclass(frozen=True)
class RegularizerTerms:
    """Scalars of one attention, or their means over several.

    Attributes:
        norm: mean f(log Σ_j s_ij).
        entropy_excess: mean max(H(p_i) − C_i, 0), in nats.
        entropy: mean H(p_i), in nats.
        null_rate: share of null rows.
    """

    norm: Tensor
    entropy_excess: Tensor
    entropy: Tensor
    null_rate: Tensor

    @classmethod
    def from_row_stats(
        cls, rows: RowStats, is_real: Tensor, bound: float, penalty: Penalty = torch.abs
    ) -> "RegularizerTerms":
        """Return the terms of one attention.

        Args:
            rows: statistics [B, H, T].
            is_real: which queries are not padding, [B, T] bool.
            bound: c of C_i = c·log n_i.
            penalty: f, with f(0) = 0.
        """
        # [B, T] -> [B, 1, T]: 1 / (real queries · H), so that sums over [B, H, T] are means
        mean_weight = is_real[:, None] / (is_real.sum().clamp(min=1) * rows.weight_sum.shape[1])
        max_entropy = bound * rows.num_keys.clamp(min=1).log()
        entropy_excess = (rows.entropy - max_entropy).clamp(min=0).masked_fill(rows.is_null, 0.0)
        return cls(
            norm=(penalty(rows.log_weight_sum) * mean_weight).sum(),
            entropy_excess=(entropy_excess * mean_weight).sum(),
            entropy=(rows.entropy.detach() * mean_weight).sum(),
            null_rate=(rows.is_null * mean_weight).sum(),
        )

    @classmethod
    def mean(cls, terms: list["RegularizerTerms"]) -> "RegularizerTerms":
        """Return the unweighted mean over attentions, of which there is at least one."""
        return cls(*(torch.stack([getattr(one, field.name) for one in terms]).mean() for field in fields(cls)))
