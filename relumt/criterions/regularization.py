"""The regulariser of [RF] §4.2, Eq. 7, from row statistics alone. Shapes: B batch, H heads, T queries.

    L = λ₁·|log Σ_j s_ij| + λ₂·max(H(p_i) − C_i, 0),    p_i = s_i/Σ_j s_ij,    C_i = c·log n_i,  c = 0.7

The first term pulls each row's sum towards 1, the second its entropy below a bound. The printed equation lost the
bars of the absolute value; the text has them. Each term is the mean over heads and real (not padded) query rows, then
over the model's attentions. A null row (Σs ≤ 1e-6) has neither logarithm nor p: it adds 0 and is counted.
"""

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from relumt.attention import RowStats


@dataclass(frozen=True)
class RegularizerTerms:
    """Scalars of one attention, or means of them over several.

    Attributes:
        norm: mean |log Σ_j s_ij|.
        entropy_excess: mean max(H(p_i) − C_i, 0), in nats.
        entropy: mean H(p_i), in nats.
        null_rate: share of null rows.
    """

    norm: Tensor
    entropy_excess: Tensor
    entropy: Tensor
    null_rate: Tensor

    @classmethod
    def from_row_stats(cls, rows: RowStats, real: Tensor, bound: float) -> "RegularizerTerms":
        """RegularizerTerms of one attention's rows.

        Args:
            rows: statistics [B, H, T].
            real: which queries are not padding, [B, T] bool.
            bound: c of C_i = c·log n_i.
        """
        share = real[:, None] / (real.sum().clamp(min=1) * rows.weight_sum.shape[1])
        limit = bound * rows.num_keys.clamp(min=1).log()
        entropy_excess = (rows.entropy - limit).clamp(min=0).masked_fill(rows.is_null, 0.0)
        return cls(
            norm=(rows.log_weight_sum.abs() * share).sum(),
            entropy_excess=(entropy_excess * share).sum(),
            entropy=(rows.entropy.detach() * share).sum(),
            null_rate=(rows.is_null * share).sum(),
        )

    @classmethod
    def mean(cls, several: list["RegularizerTerms"]) -> "RegularizerTerms":
        """The unweighted mean over attentions; raises ValueError for none."""
        if not several:
            raise ValueError("no attention gave statistics")
        return cls(*(torch.stack([getattr(one, f.name) for one in several]).mean() for f in fields(cls)))
