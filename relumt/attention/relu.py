"""ReLUFormer's attention, [RF] Eq. 6: ReLU with a factor that depends on the number of keys. Shapes: B H T S D.

    s_ij = ReLU(q_i·k_j/√D) / (γ √(n_i/2)),    n_i = number of keys visible to query i

For q, k and v of unit variance, ReLU keeps half of the variance of each of n_i independent terms. The output
Σ_j s_ij v_j would therefore have variance n_i/2 without the factor; with it, it has 1/γ².

The paper does not print how the projections of q and k are initialized. With fairseq's initialization half of the
scores are negative, and ReLU gives them neither weight nor gradient. `init_projections` instead gives every pair the
same positive score plus a smaller random part. What that changes: docs/results/regularizer_sweep.md.
"""

import math
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn

from relumt.attention.kernels.pointwise_params import Activation
from relumt.attention.mask import AttentionMask
from relumt.attention.mechanism import Mechanism
from relumt.attention.normalized_heads import NormalizedHeads
from relumt.attention.norms import LayerNorm
from relumt.attention.variant_spec import NOT_NEGATIVE, POSITIVE


@dataclass(frozen=True)
class ReLUInitOptions:
    """Initialization of the projections of q and k: flags --relu-initial-score and --relu-initial-gain."""

    initial_score: float = field(
        default=0.1,
        metadata={
            "help": "initial score of every pair, set by the biases; 0 keeps fairseq's biases",
            "range": NOT_NEGATIVE,
        },
    )
    initial_gain: float = field(
        default=0.3, metadata={"help": "factor of the initial weights of the q and k projections; 1 keeps fairseq's"}
    )


@dataclass(frozen=True)
class ReLUOptions(ReLUInitOptions):
    """Options of `relu`: flags --relu-gamma, --relu-scale and those of the initialization."""

    gamma: float = field(
        default=1.0, metadata={"help": "γ of [RF] Eq. 6, which divides the weights", "range": POSITIVE}
    )
    scale: Literal["visible", "none"] = field(
        default="visible",
        metadata={"help": "'visible' divides by √(n/2) (relu2: √(3n/2)), n = visible keys; 'none' is an ablation"},
    )


class RectifiedAttention(Mechanism):
    """ReLU(q·k/√D) with the initialization of `options`; the base of this module's mechanisms.

    Args:
        num_heads: H.
        head_dim: D.
        dropout: probability of dropping a weight in training.
        options: initialization of the projections.
    """

    pointwise_activation: Activation | None = "relu"

    def __init__(
        self, num_heads: int, head_dim: int, dropout: float = 0.0, options: ReLUInitOptions | None = None
    ) -> None:
        super().__init__(num_heads, head_dim, dropout)
        self.options = options or ReLUInitOptions()

    @torch.no_grad()
    def init_projections(self, q_proj: nn.Linear, k_proj: nn.Linear) -> None:
        """Give every pair the score `initial_score` and scale the random part of q and k by `initial_gain`.

        Raises:
            ValueError: a projection has no bias, which the score would come from.
        """
        if self.options.initial_score and (q_proj.bias is None or k_proj.bias is None):
            raise ValueError("initial_score needs projections with biases; pass initial_score=0 to initialize without")
        # D components of equal value c in both q and k give the score D·c²/√D.
        component = math.sqrt(self.options.initial_score / math.sqrt(self.head_dim))
        for weight in {q_proj.weight, k_proj.weight}:  # one if it is shared
            weight.mul_(self.options.initial_gain)
        for projection in (q_proj, k_proj):
            if component:
                projection.bias.fill_(component)

    def weights(self, scores: Tensor, mask: AttentionMask) -> Tensor:
        """Return ReLU of scores [B, H, T, S] at visible keys."""
        return self.zero_hidden_scores(scores, mask).relu_()


class ReLUAttention(RectifiedAttention):
    """[RF] Eq. 6. With the attention regularizer of `relumt.plugin.criterions` it is ReLUFormer."""

    options: ReLUOptions

    def __init__(self, num_heads: int, head_dim: int, dropout: float = 0.0, options: ReLUOptions | None = None) -> None:
        super().__init__(num_heads, head_dim, dropout, options or ReLUOptions())

    def factor(self, T: int, S: int, mask: AttentionMask, like: Tensor) -> Tensor | float:
        """Return 1/(γ√D√(n/2)). ReLU(c·x) = c·ReLU(x) for c > 0, so the factor can come before ReLU."""
        factor = 1 / (self.options.gamma * math.sqrt(self.head_dim))
        if self.options.scale == "none":
            return factor
        scaled: Tensor | float = factor * (mask.num_visible(T, S, like) / 2) ** -0.5
        return scaled


class ReLULayerNormAttention(NormalizedHeads, RectifiedAttention):
    """LayerNorm over the concatenated heads instead of the factor, which [RF] §4 reports as worse, without a number."""

    build_norm = LayerNorm
