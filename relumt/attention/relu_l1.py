"""ReLU to a power, divided by the sum of its row (L1 norm): weights without an exponential. Shapes: B H T S D.

    s_ij = w_ij^p / (Σ_l w_il^p + ε),    w_ij = ReLU(b + a z_ij/p) / max(b, 1/p),    z_ij = q_i·k_j/√D,    ε = 1e-6

over the keys j and l visible to query i. b = 1, the default, is Tsallis's q-exponential (1988), which becomes
exp(a z_ij) for p → ∞: a score of 0 then means what it means to softmax, so attention starts out uniform, but a score of
at most −p/a has a weight of exactly 0. With b = 0, s_ij is ReLU(z_ij)^p divided by its sum: the sign of a score
decides. max(b, 1/p) cancels but for ε, which w^p would fall below if b is small and p large. Gao and Spratling 2025
(arXiv:2501.13428) find that softmax owes its success to the L1 norm, not to the exponential.

For a = 1, the default, (1 + z/p)^p grows more slowly than exp(z). With a = p (exp(5/p) − 1)/5, which is 1.4 for p = 8,
both are equal at z = 5: then it can take the place of softmax in a model that is being trained.

A row whose scores are all at most −b·p/a is null, as in [RL].
"""

import math
from dataclasses import dataclass, field, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from relumt.attention.kernels.checked_calls import PointwiseResult
from relumt.attention.kernels.pointwise_params import POWERS_OF_RELU, PointwiseParams
from relumt.attention.mask import AttentionMask
from relumt.attention.mechanism import Mechanism
from relumt.attention.variant_spec import POSITIVE

EPSILON = 1e-6

MAX_SCORE = 128
"""Kernels serve where powers of scores up to this are finite in float32: they do not divide by the largest first."""


@dataclass(frozen=True)
class ReLUL1Options:
    """Options of `relu_l1`: flags --relu-l1-power, --relu-l1-slope and --relu-l1-shift."""

    power: int = field(
        default=2,
        metadata={
            "help": "p: weights are sharper, and rows less sparse, the higher it is",
            "range": (1, len(POWERS_OF_RELU)),
        },
    )
    slope: float = field(default=1.0, metadata={"help": "a: what scores are multiplied with", "range": POSITIVE})
    shift: float = field(default=1.0, metadata={"help": "b: what is added to scores before ReLU", "range": (0.0, 1e3)})


class L1NormalizedReLUAttention(Mechanism):
    """ReLU(b + a z/p)^p, divided by its sum.

    Args:
        num_heads: H.
        head_dim: D.
        dropout: probability of dropping a weight in training.
        options: p, a and b.
    """

    pointwise_activation = "relu"
    normalizes_fused = True
    exceeds_float16 = True

    def __init__(
        self, num_heads: int, head_dim: int, dropout: float = 0.0, options: ReLUL1Options | None = None
    ) -> None:
        super().__init__(num_heads, head_dim, dropout)
        self.options = options or ReLUL1Options()

    def factor(self, T: int, S: int, mask: AttentionMask, like: Tensor) -> float:
        """Return a/(p max(b, 1/p) √D)."""
        return self.options.slope / (max(self.options.power * self.options.shift, 1.0) * math.sqrt(self.head_dim))

    def bias(self, T: int, S: int, mask: AttentionMask, like: Tensor) -> Tensor | None:
        """Return b/max(b, 1/p), [1, 1, 1, 1]."""
        bias = min(self.options.power * self.options.shift, 1.0)
        return like.new_full((1, 1, 1, 1), bias) if bias else None

    def weights(self, scores: Tensor, mask: AttentionMask) -> Tensor:
        """Return weights of scores [B, H, T, S]; each w_ij is divided by the largest of its row before the power.

        A row of tiny weights sums to less than 1, which keeps the gradients of its scores below 1/ε.
        """
        w = F.relu(self.zero_hidden_scores(scores, mask))
        if not w.shape[-1]:
            return w
        # Products with 1/x [B, H, T, 1], because a quotient's backward pass takes more passes over [B, H, T, S].
        largest = w.detach().amax(-1, keepdim=True).clamp(min=torch.finfo(w.dtype).tiny)
        powers = (w * (1 / largest)) ** self.options.power
        return powers * (1 / (powers.sum(-1, keepdim=True) + EPSILON * largest**-self.options.power))

    def pointwise_params(self, q: Tensor, k: Tensor, mask: AttentionMask) -> PointwiseParams | None:
        """Return what a fused kernel has to know for weights that are not yet divided by their sum.

        None if ((pb + a z)/max(pb, 1))^p exceeds float32 at a score z of MAX_SCORE.
        """
        options = self.options
        largest = torch.finfo(torch.float32).max ** (1 / options.power)
        if options.slope * MAX_SCORE / max(options.power * options.shift, 1.0) > largest:
            return None
        params = super().pointwise_params(q, k, mask)
        return params and replace(params, activation=POWERS_OF_RELU[options.power - 1])

    def normalize_fused(self, output: Tensor, weight_sum: Tensor | None, w_log_w: Tensor | None) -> PointwiseResult:
        """Divide Σ_j w_ij^p v_j by Σ_j w_ij^p + ε, and row sums alike. In kernels, large powers are infinite."""
        assert weight_sum is not None
        total = weight_sum + EPSILON
        share = weight_sum / total
        if w_log_w is not None:
            w_log_w = w_log_w / total - share * total.log()  # log s_ij = log w_ij^p − log total
        return output / total[..., None], share, w_log_w
