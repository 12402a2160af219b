"""ReLUFormer's attention, [RF] Eq. 6: ReLU with a scale that depends on how many keys are seen. Shapes: B H T S D.

    s_ij = ReLU(q_i·k_j/√D) / (γ √(n_i/2)),    n_i = number of keys visible to query i

With unit-variance q, k and v, ReLU keeps half of the variance of each of n_i independent terms, so the
mixed value Σ_j s_ij v_j would have variance n_i/2 without the factor and has 1/γ² with it.

How the projections of q and k start is not printed. With fairseq's start, scores are as often negative as positive,
and ReLU gives the negative half neither weight nor gradient. `initialise` starts instead from a positive score for
every pair, plus a smaller random part: docs/results.md has what that was measured to change.
"""

import math
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn

from relumt.attention.mask import AttentionMask
from relumt.attention.mechanism import Mechanism
from relumt.attention.norms import LayerNorm


@dataclass(frozen=True)
class ReLUStart:
    """How the projections of q and k start: command-line flags --relu-initial-score, --relu-initial-gain."""

    initial_score: float = field(
        default=0.1, metadata={"help": "score of every pair at the start, given by the biases; 0 leaves fairseq's"}
    )
    initial_gain: float = field(
        default=0.3, metadata={"help": "factor of the initial weights that make q and k; 1 leaves fairseq's"}
    )

    def __post_init__(self) -> None:
        if self.initial_score < 0:
            raise ValueError(f"--relu-initial-score must not be negative, not {self.initial_score}")


@dataclass(frozen=True)
class ReLUOptions(ReLUStart):
    """Options of `relu`: command-line flags --relu-gamma, --relu-scale …"""

    gamma: float = field(default=1.0, metadata={"help": "γ of [RF] Eq. 6, which divides the weights"})
    scale: Literal["visible", "none"] = field(
        default="visible", metadata={"help": "divide by √(n/2), n the visible keys, or (ablation) do not"}
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.gamma > 0:
            raise ValueError(f"--relu-gamma must be positive, not {self.gamma}")


class RectifiedAttention(Mechanism):
    """ReLU(q·k/√D) and nothing more, with the start that `options` gives.

    Args:
        num_heads: H.
        head_dim: D.
        dropout: probability of dropping a weight while training.
        options: of the start.
    """

    pointwise_activation = "relu"

    def __init__(self, num_heads: int, head_dim: int, dropout: float = 0.0, options: ReLUStart | None = None) -> None:
        super().__init__(num_heads, head_dim, dropout)
        self.options = options or ReLUStart()

    @torch.no_grad()
    def init_projections(self, q_proj: nn.Linear, k_proj: nn.Linear) -> None:
        """Give every pair the score `initial_score`, and scale the random part of q and k by `initial_gain`."""
        component = math.sqrt(self.options.initial_score / math.sqrt(self.head_dim))
        for projection in (q_proj, k_proj):
            projection.weight.mul_(self.options.initial_gain)
            if component and projection.bias is not None:
                projection.bias.fill_(component)

    def weights(self, scores: Tensor, mask: AttentionMask) -> Tensor:
        """ReLU of scores [B, H, T, S] at visible keys."""
        return mask.fill_hidden_(scores, 0.0).relu_()


class ReLUAttention(RectifiedAttention):
    """[RF] Eq. 6, with `gamma` and `scale` from `ReLUOptions`."""

    def __init__(self, num_heads: int, head_dim: int, dropout: float = 0.0, options: ReLUOptions | None = None) -> None:
        super().__init__(num_heads, head_dim, dropout, options or ReLUOptions())

    def factor(self, T: int, S: int, mask: AttentionMask, like: Tensor) -> Tensor | float:
        """1/(γ√D√(n/2)): ReLU(c·x) = c·ReLU(x) for c > 0, so the factor can come before ReLU."""
        factor = 1 / (self.options.gamma * math.sqrt(self.head_dim))
        return factor * (mask.num_visible(T, S, like) / 2) ** -0.5 if self.options.scale == "visible" else factor


class ReLULayerNormAttention(RectifiedAttention):
    """LayerNorm over the concatenated heads in place of the factor: the attempt that [RF] §4 reports as worse."""

    def __init__(self, num_heads: int, head_dim: int, dropout: float = 0.0, options: ReLUStart | None = None) -> None:
        super().__init__(num_heads, head_dim, dropout, options)
        self.norm = LayerNorm(num_heads * head_dim)

    def postprocess_heads(self, x: Tensor) -> Tensor:
        """LayerNorm of the concatenated heads, [T, B, E]."""
        return self.norm(x)
