"""The terms of the regularizer of [RF] Eq. 7, from row statistics alone. Shapes: B batch, H heads, T queries.

    f(log Σ_j s_ij)   and   max(H(p_i) − C_i, 0),    p_i = s_i/Σ_j s_ij,    C_i = c·log n_i

Each is the mean over heads and real (not padded) queries, then over the model's attentions. A null row (Σs ≤ 1e-6) has
neither a logarithm nor p: it contributes 0 and is counted.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from relumt.attention import RowStats

Penalty = Callable[[Tensor], Tensor]


NORM_PENALTIES: dict[str, Callable[[Tensor, float], Tensor]] = {
    "abs": lambda x, _: x.abs(),
    "square": lambda x, _: x.square(),
    "hinge": lambda x, margin: (x.abs() - margin).clamp(min=0),
}
"""Name of a shape of f → f, given a margin: with "hinge", sums between e^−margin and e^margin are free."""


def sum_heads_first(x: Tensor) -> Tensor:
    """Return the sum of x [B, H, T]: of all at once, a compiled sum would leave most of a GPU idle."""
    return x.sum(1).sum()


class RegularizerTerms(NamedTuple):
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
            norm=sum_heads_first(penalty(rows.log_weight_sum) * mean_weight),
            entropy_excess=sum_heads_first(entropy_excess * mean_weight),
            entropy=sum_heads_first(rows.entropy.detach() * mean_weight),
            null_rate=sum_heads_first(rows.is_null * mean_weight),
        )

    @classmethod
    def mean(cls, terms: list["RegularizerTerms"]) -> "RegularizerTerms":
        """Return the unweighted mean over one or more attentions."""
        return cls(*(torch.stack(values).mean() for values in zip(*terms, strict=True)))
