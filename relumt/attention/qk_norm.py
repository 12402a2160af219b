"""Queries and keys of length 1 with a learned scale (Henry et al. 2020, arXiv:2010.04245). Shapes: B H T S D.

    q'_i = g_h c_i √D · q_i/‖q_i‖,    k'_j = k_j/‖k_j‖,    so a mechanism's score q'_i·k'_j/√D is g_h c_i cos(q_i, k_j)

    constant    c_i = 1
    log_n       c_i = log max(n_i, 2) / log 20,    n_i = number of keys visible to query i

g_h is trained for each head; the paper has one g for all. The scale of scores is then a parameter of its own: it
depends neither on the initialization of the projections nor on the size of what they project. Adam moves it by about
the learning rate per update at most, so it cannot learn that long rows, in which other keys add up, need sharper
weights; c_i of `log_n` gives them (as in Scalable-Softmax, arXiv:2501.19399). It serves any mechanism that computes
products of queries and keys. `--attention-qk-norm` and `--attention-qk-norm log_n` set it, in Python
`MultiheadAttention(…, qk_norm="log_n")`.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from relumt.attention.mask import AttentionMask
from relumt.attention.mechanism import Mechanism
from relumt.attention.precision import at_least_float32

QK_NORMS = ("constant", "log_n")

INITIAL_SCALE = 10.0
"""Initial g_h. The paper's log₂(L² − L) is 9.9 for sentences of L = 31 words. Random vectors of 64 components then have
scores with a standard deviation of 1.25."""

USUAL_NUM_KEYS = 20
"""n for which both kinds have the same scale: about the length of a sentence in subwords."""


class QKNorm(nn.Module):
    """Normalizes queries and keys.

    Args:
        kind: one of QK_NORMS.
        num_heads: H.
        head_dim: D.

    Attributes:
        scale: g of each head, [H].
    """

    def __init__(self, kind: str, num_heads: int, head_dim: int) -> None:
        super().__init__()
        if kind not in QK_NORMS:
            raise ValueError(f"a QK norm must be one of {', '.join(QK_NORMS)}, not {kind!r}")
        self.kind = kind
        self.head_dim = head_dim
        self.scale = nn.Parameter(torch.full((num_heads,), INITIAL_SCALE))

    @classmethod
    def build(cls, kind: str, mechanism: Mechanism) -> "QKNorm":
        """Return the norm for the heads of a mechanism; raise ValueError if it computes no products of q and k."""
        if not mechanism.has_weights:
            raise ValueError(f"QK norm needs products of queries and keys, which {type(mechanism).__name__} lacks")
        return cls(kind, mechanism.num_heads, mechanism.head_dim)

    def forward(self, q: Tensor, k: Tensor, mask: AttentionMask) -> tuple[Tensor, Tensor]:
        """Normalize q [B, H, T, D] and k [B, H, S, D]."""
        return self.normalize_queries(q, k.shape[2], mask), self.normalize_keys(k)

    def normalize_queries(self, q: Tensor, num_keys: int, mask: AttentionMask) -> Tensor:
        """Return q' of q [B, H, T, D], which attend to `num_keys` keys through a mask."""
        exact = at_least_float32(q)
        # [H] -> [H, 1, 1]
        scale = self.scale.view(-1, 1, 1) * math.sqrt(self.head_dim)
        if self.kind == "log_n":
            # a single key would get the score 0, and from ReLU no weight
            logs = mask.log_num_visible(q.shape[2], num_keys, exact).clamp_min(math.log(2))
            # [H, 1, 1] · [B or 1, 1, T or 1, 1] -> [B or 1, H, T or 1, 1]
            scale = scale * (logs / math.log(USUAL_NUM_KEYS))
        return (F.normalize(exact, dim=-1) * scale).to(q.dtype)

    def normalize_keys(self, k: Tensor) -> Tensor:
        """Return k' of k [B, H, S, D]."""
        return F.normalize(at_least_float32(k), dim=-1).to(k.dtype)
