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
from relumt.attention.transforms import is_exporting
from relumt.attention.variant_spec import POSITIVE

EPSILON = 1e-6

MAX_EXPORTED_KEYS = 1 << 20
"""Keys for which an exported program, whose length is open, keeps sums from overflowing."""


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
        """Return weights of scores [B, H, T, S]; values whose powers would overflow count as the largest that do not.

        A row of tiny weights sums to less than 1, which keeps the gradients of its scores below 1/ε.
        """
        num_keys = MAX_EXPORTED_KEYS if is_exporting() else max(scores.shape[-1], 1)
        largest = (torch.finfo(scores.dtype).max / num_keys) ** (1 / self.options.power) / 2
        rectified = F.hardtanh(self.zero_hidden_scores(scores, mask), 0.0, largest)
        weights = rectified**self.options.power if self.options.power > 1 else rectified
        return weights / (weights.sum(-1, keepdim=True) + EPSILON)

    def pointwise_params(self, q: Tensor, k: Tensor, mask: AttentionMask) -> PointwiseParams | None:
        """Return what a fused kernel has to know for weights that are not yet divided by their sum.

        None if b < 1/p and p > 16: weights are (pb + a z)^p then, which exceed float32 for p = 32 and z = 16/a.
        """
        if self.options.power > 16 and self.options.power * self.options.shift < 1:
            return None
        params = super().pointwise_params(q, k, mask)
        return params and replace(params, activation=POWERS_OF_RELU[self.options.power - 1])

    def normalize_fused(self, output: Tensor, weight_sum: Tensor | None, w_log_w: Tensor | None) -> PointwiseResult:
        """Divide Σ_j w_ij^p v_j by Σ_j w_ij^p + ε, and row sums alike. In kernels, large powers are infinite."""
        assert weight_sum is not None
        total = weight_sum + EPSILON
        share = weight_sum / total
        if w_log_w is not None:
            w_log_w = w_log_w / total - share * total.log()  # log s_ij = log w_ij^p − log total
        return output / total[..., None], share, w_log_w
