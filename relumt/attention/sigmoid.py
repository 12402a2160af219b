"""Sigmoid attention (Ramapuram et al. 2024): each pair for itself. Shapes: B H T S D.

    s_ij = σ(q_i·k_j/√D − log n_i),    n_i = number of keys visible to query i

The bias −log n lets a row start with a sum near 1. The paper takes n to be the sequence length; visible keys are what
makes the result independent of padding and of decoding step by step.
"""

import math

from torch import Tensor

from relumt.attention.base import Mechanism, Visible


class SigmoidAttention(Mechanism):
    """A sigmoid with the bias −log n in softmax's place; rows do not sum to 1."""

    pointwise = "sigmoid"

    def bias(self, T: int, S: int, visible: Visible, like: Tensor) -> Tensor:
        """−log n."""
        n = visible.n(T, S, like)
        return -n.log() if isinstance(n, Tensor) else like.new_tensor(-math.log(n)).view(1, 1, 1, 1)

    def weights(self, scores: Tensor, visible: Visible) -> Tensor:
        """Sigmoid of scores [B, H, T, S] at visible keys."""
        return visible.hide_(scores, -math.inf).sigmoid()
