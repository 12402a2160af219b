"""ReLU divided by the number of keys (Wortsman et al. 2023). Shapes: B H T S D.

    s_ij = ReLU(q_i·k_j/√D) / n_i,    n_i = number of keys visible to query i

In the paper, n is the sequence length. Counting visible keys instead makes the result independent of padding.
"""

import math

from torch import Tensor

from relumt.attention.mask import AttentionMask
from relumt.attention.mechanism import Mechanism


class ReLUOverLengthAttention(Mechanism):
    """ReLU/n: the expected sum of a row does not depend on n. In `relu`, the variance of the output does not."""

    pointwise_activation = "relu"

    def factor(self, T: int, S: int, mask: AttentionMask, like: Tensor) -> Tensor | float:
        """Return 1/(√D n). ReLU(c·x) = c·ReLU(x) for c > 0, so the division by n can come before ReLU."""
        return 1 / (math.sqrt(self.head_dim) * mask.num_visible(T, S, like))

    def weights(self, scores: Tensor, mask: AttentionMask) -> Tensor:
        """Return ReLU of scores [B, H, T, S] at visible keys."""
        return self.zero_hidden_scores(scores, mask).relu_()
