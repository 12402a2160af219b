"""Sigmoid attention (Ramapuram et al. 2024): each weight depends on its own pair only. Shapes: B H T S D.

    s_ij = σ(q_i·k_j/√D − log n_i),    n_i = number of keys visible to query i

With the bias −log n, the weights of a query initially sum to about 1. In the paper, n is the sequence length. Counting
visible keys instead makes the result independent of padding and of incremental decoding.
"""

import math

from torch import Tensor

from relumt.attention.mask import AttentionMask
from relumt.attention.mechanism import Mechanism


class SigmoidAttention(Mechanism):
    """Sigmoid instead of softmax: dense positive weights that do not sum to 1."""

    pointwise_activation = "sigmoid"

    def bias(self, T: int, S: int, mask: AttentionMask, like: Tensor) -> Tensor:
        """Return −log n."""
        return -mask.log_num_visible(T, S, like)

    def weights(self, scores: Tensor, mask: AttentionMask) -> Tensor:
        """Return the sigmoid of scores [B, H, T, S] at visible keys."""
        return mask.fill_hidden(scores, -math.inf).sigmoid()
