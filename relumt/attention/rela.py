"""ReLA, rectified linear attention, and the ablations of its Table 1: [RL] Eq. 3–5. Shapes: B H T S D, E = H·D.

    α_ij = ReLU(q_i·k_j/√D),    z_i = the heads' Σ_j α_ij v_j, concatenated
    ReLA-i: g ⊙ z/RMS(z), g ~ U(−√(3/D), √(3/D)) at the start
    ReLA-g: σ(w ⊙ z) ⊙ g ⊙ z/RMS(z), g = 1 at the start

The norm takes the place of softmax's: without one the output grows with the number of keys. A token to which every key
is null gets exactly 0, except from LayerNorm, whose bias then speaks alone.
"""

import math

import torch.nn.functional as F
from torch import Tensor, nn

from relumt.attention.mask import AttentionMask
from relumt.attention.mechanism import Mechanism
from relumt.attention.norms import Gated, LayerNorm, RMSNorm


class UnnormalizedReLA(Mechanism):
    """ReLU alone: the first row of [RL]'s ablation, which did not converge there."""

    pointwise_activation = "relu"

    def __init__(self, num_heads: int, head_dim: int, dropout: float = 0.0) -> None:
        super().__init__(num_heads, head_dim, dropout)
        self.norm = self.make_norm(num_heads * head_dim)

    def make_norm(self, size: int) -> nn.Module:
        """The norm over E = `size`; a variant overrides it."""
        return nn.Identity()

    def activation(self, scores: Tensor) -> Tensor:
        """Scores → weights; a variant's must give 0 for 0, which is how keys are hidden."""
        return scores.relu_()

    def weights(self, scores: Tensor, mask: AttentionMask) -> Tensor:
        """The activation of scores [B, H, T, S] at visible keys."""
        return self.activation(mask.fill_hidden_(scores, 0.0))

    def postprocess_heads(self, x: Tensor) -> Tensor:
        """The norm of the concatenated heads, [T, B, E]."""
        return self.norm(x)


class ReLAWithRMSNorm(UnnormalizedReLA):
    """ReLU and RMSNorm, without gate or special start: an ablation of [RL]."""

    def make_norm(self, size: int) -> nn.Module:
        """RMSNorm."""
        return RMSNorm(size)


class ReLAi(ReLAWithRMSNorm):
    """ReLA-i, [RL] Eq. 4: RMSNorm whose gain starts small and of either sign."""

    def make_norm(self, size: int) -> nn.Module:
        """RMSNorm, its gain started as Glorot's uniform with D for fan-in and fan-out."""
        norm = RMSNorm(size)
        bound = math.sqrt(3 / self.head_dim)
        nn.init.uniform_(norm.weight, -bound, bound)
        return norm


class ReLAg(UnnormalizedReLA):
    """ReLA-g, [RL] Eq. 5: RMSNorm with a gate, the paper's best."""

    def make_norm(self, size: int) -> nn.Module:
        """Gated RMSNorm."""
        return Gated(size, RMSNorm(size))


class ReLAgWithLayerNorm(UnnormalizedReLA):
    """ReLA-g with LayerNorm in RMSNorm's place: an ablation of [RL]."""

    def make_norm(self, size: int) -> nn.Module:
        """Gated LayerNorm."""
        return Gated(size, LayerNorm(size))


class ReLAgWithGELU(ReLAg):
    """ReLA-g with GELU in ReLU's place: an ablation of [RL]."""

    has_negative_weights = True

    def activation(self, scores: Tensor) -> Tensor:
        """GELU."""
        return F.gelu(scores)


class ReLAgWithLeakyReLU(ReLAg):
    """ReLA-g with LeakyReLU in ReLU's place: an ablation of [RL], which prints no slope."""

    has_negative_weights = True
    negative_slope = 0.2
    """The default of the framework of the authors' code."""

    def activation(self, scores: Tensor) -> Tensor:
        """LeakyReLU."""
        return F.leaky_relu(scores, self.negative_slope)
