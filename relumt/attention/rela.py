"""ReLA, rectified linear attention, [RL] Eq. 3–5, and the ablations of its Table 1. Shapes: B H T S D, E = H·D.

    s_ij = ReLU(q_i·k_j/√D),    z_i = Σ_j s_ij v_j of all heads, concatenated,    RMS(z) = √(mean z² + 1e-8)
    ReLA-i: g ⊙ z/RMS(z),               g initialized from U(−√(3/E), √(3/E))
    ReLA-g: σ(w ⊙ z) ⊙ g ⊙ z/RMS(z),    g initialized to 1

The norm replaces softmax's: without it the output grows with the number of keys. A token whose weights are 0 in every
head gets exactly 0, except from LayerNorm, whose bias remains, halved by the gate.
"""

import torch.nn.functional as F
from torch import Tensor

from relumt.attention.mask import AttentionMask
from relumt.attention.mechanism import Mechanism
from relumt.attention.normalized_heads import NormalizedHeads
from relumt.attention.norms import GatedNorm, LayerNorm, RandomGainRMSNorm, RMSNorm


class UnnormalizedReLA(Mechanism):
    """ReLU alone, the first row of [RL]'s ablation, which did not converge there. Shows what the norm is for."""

    pointwise_activation = "relu"

    def activation(self, scores: Tensor) -> Tensor:
        """Turn scores into weights. An override must have value and slope 0 at 0, which is the score of hidden keys."""
        return scores.relu_()

    def weights(self, scores: Tensor, mask: AttentionMask) -> Tensor:
        """Return the activation of scores [B, H, T, S] at visible keys."""
        return self.activation(self.zero_hidden_scores(scores, mask))


class ReLAWithRMSNorm(NormalizedHeads, UnnormalizedReLA):
    """ReLU and RMSNorm, an ablation of [RL] without gate or special initialization."""

    build_norm = RMSNorm


class ReLAi(ReLAWithRMSNorm):
    """ReLA-i, [RL] Eq. 4: RMSNorm whose gain starts small and with either sign. Fewer parameters than ReLA-g."""

    build_norm = RandomGainRMSNorm


class ReLAg(NormalizedHeads, UnnormalizedReLA):
    """ReLA-g, [RL] Eq. 5: RMSNorm with a gate, the paper's best. Sparse weights and null rows without a regularizer."""

    @staticmethod
    def build_norm(size: int) -> GatedNorm:
        """Build a gated RMSNorm."""
        return GatedNorm(size, RMSNorm(size))


class ReLAgWithLayerNorm(NormalizedHeads, UnnormalizedReLA):
    """ReLA-g with LayerNorm instead of RMSNorm, an ablation of [RL]."""

    @staticmethod
    def build_norm(size: int) -> GatedNorm:
        """Build a gated LayerNorm."""
        return GatedNorm(size, LayerNorm(size))


class ReLAgWithGELU(ReLAg):
    """ReLA-g with GELU instead of ReLU, an ablation of [RL]."""

    has_negative_weights = True

    def activation(self, scores: Tensor) -> Tensor:
        """Return GELU of the scores."""
        return F.gelu(scores)


class ReLAgWithLeakyReLU(ReLAg):
    """ReLA-g with LeakyReLU instead of ReLU, an ablation of [RL]. The paper does not give the slope; ours is 0.2."""

    has_negative_weights = True
    negative_slope = 0.2
    """The default of the framework of the authors' code."""

    def activation(self, scores: Tensor) -> Tensor:
        """Return LeakyReLU of the scores."""
        return F.leaky_relu(scores, self.negative_slope)
