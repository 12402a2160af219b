"""Softpick (Zuhri et al. 2025, arXiv:2504.20966): a rectified softmax with exact zeros. Shapes: B H T S D.

    s_ij = ReLU(exp(z_ij) − 1) / (Σ_l |exp(z_il) − 1| + ε),    z_ij = q_i·k_j/√D

over the keys j and l visible to query i. Negative scores get no weight but still count below the fraction line, so the
weights of a row sum to at most 1, and to 0 if no score is positive. ε = 1e-8 as in the authors' code.
"""

import torch
from torch import Tensor

from relumt.attention.mask import AttentionMask
from relumt.attention.mechanism import Mechanism

EPSILON = 1e-8


class SoftpickAttention(Mechanism):
    """Softpick instead of softmax: sparse weights without a norm, an attention sink or a regularizer."""

    def weights(self, scores: Tensor, mask: AttentionMask) -> Tensor:
        """Return softpick of scores [B, H, T, S]; a score of 0 at hidden keys adds nothing to either sum."""
        if not scores.numel():
            return scores
        scores = self.zero_hidden_scores(scores, mask)
        # |exp(z) − 1| = exp(max(z, 0))·(1 − exp(−|z|)), exact for small z. The factor exp(−m), m ≥ 0, keeps it from
        # overflowing.
        m = scores.detach().amax(-1, keepdim=True).clamp_(min=0)
        distance = (scores.clamp(min=0) - m).exp() * -torch.expm1(-scores.abs())
        return distance.where(scores > 0, 0.0) / (distance.sum(-1, keepdim=True) + EPSILON * (-m).exp())
