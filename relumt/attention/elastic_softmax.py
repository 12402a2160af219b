"""Elastic-Softmax (Fu et al. 2026, arXiv:2601.00919): softmax with an offset, below which weights are exactly 0.

    s_ij = ReLU(p_ij + τ_h/n_i),    p_ij = exp(z_ij) / Σ_l exp(z_il),    z_ij = q_i·k_j/√D

over the keys j and l visible to query i, n_i of them. τ_h is trained for each head and starts at −1, where a key gets
weight if it has more than its share of the softmax. It is no attention without softmax: its question is whether exact
zeros alone cost quality. A row of equal scores is null, and so is that of a query which sees a single key. Shapes: B H
T S D.
"""

import torch
from torch import Tensor, nn

from relumt.attention.mask import AttentionMask
from relumt.attention.softmax import SoftmaxAttention

INITIAL_OFFSET = -1.0


class ElasticSoftmaxAttention(SoftmaxAttention):
    """ReLU(softmax + τ/n), with τ trained for each head.

    Attributes:
        offset: τ of each head, [H].
    """

    weights_sum_to_one = False

    def __init__(self, num_heads: int, head_dim: int, dropout: float = 0.0) -> None:
        super().__init__(num_heads, head_dim, dropout)
        self.offset = nn.Parameter(torch.empty(num_heads))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialize τ to INITIAL_OFFSET."""
        nn.init.constant_(self.offset, INITIAL_OFFSET)

    def weights(self, scores: Tensor, mask: AttentionMask) -> Tensor:
        """Return the weights of scores [B, H, T, S]."""
        T, S = scores.shape[-2:]
        # [H] -> [1, H, 1, 1]
        offset = self.offset.to(scores.dtype).view(1, -1, 1, 1) / mask.num_visible(T, S, scores)
        return mask.fill_hidden(super().weights(scores, mask) + offset, 0.0).relu()
