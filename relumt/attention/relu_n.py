"""ReLU divided by the length (Wortsman et al. 2023). Shapes: B H T S D.

    s_ij = ReLU(q_i·k_j/√D) / n_i,    n_i = number of keys visible to query i

The paper takes n to be the sequence length; visible keys are what makes the result independent of padding.
"""

import math

from torch import Tensor

from relumt.attention.base import Mechanism, Visible


class ReLUOverLengthAttention(Mechanism):
    """ReLU/n: as `relu`, but it is a row's sum that does not grow with n, instead of its variance."""

    def scores(self, q: Tensor, k: Tensor, visible: Visible) -> Tensor:
        """Scores divided by n: ReLU(c·x) = c·ReLU(x) for c > 0, so the factor can go into q."""
        n = visible.n(q.shape[-2], k.shape[-2], q)
        return (q / (math.sqrt(self.head_dim) * n)) @ k.transpose(-2, -1)

    def weights(self, scores: Tensor, visible: Visible) -> Tensor:
        """ReLU of scores [B, H, T, S] at visible keys."""
        return visible.hide_(scores, 0.0).relu_()
