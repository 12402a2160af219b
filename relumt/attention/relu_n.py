"""ReLU divided by the length (Wortsman et al. 2023). Shapes: B H T S D.

    s_ij = ReLU(q_i·k_j/√D) / n_i,    n_i = number of keys visible to query i

The paper takes n to be the sequence length; visible keys are what makes the result independent of padding.
"""

import math

from torch import Tensor

from relumt.attention.mask import AttentionMask
from relumt.attention.mechanism import Mechanism


class ReLUOverLengthAttention(Mechanism):
    """ReLU/n: as `relu`, but it is a row's sum that does not grow with n, instead of its variance."""

    pointwise_activation = "relu"

    def factor(self, T: int, S: int, mask: AttentionMask, like: Tensor) -> Tensor | float:
        """1/(√D n): ReLU(c·x) = c·ReLU(x) for c > 0, so the factor can come before ReLU."""
        return 1 / (math.sqrt(self.head_dim) * mask.num_visible(T, S, like))

    def weights(self, scores: Tensor, mask: AttentionMask) -> Tensor:
        """ReLU of scores [B, H, T, S] at visible keys."""
        return mask.fill_hidden_(scores, 0.0).relu_()
