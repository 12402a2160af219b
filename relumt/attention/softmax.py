"""Softmax attention (Vaswani et al. 2017): the baseline of every paper. Shapes: B H T S D.

    s_ij = exp(q_i·k_j/√D) / Σ_l exp(q_i·k_l/√D)

over the keys j and l visible to query i; a query that sees nothing gives 0.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from relumt.attention.base import Attended, Mechanism, Visible, Want


class SoftmaxAttention(Mechanism):
    """Softmax over the visible keys; PyTorch's fused attention serves it where only `mixed` is wanted."""

    stochastic = True

    def weights(self, scores: Tensor, visible: Visible) -> Tensor:
        """Softmax of scores [B, H, T, S]; a query that sees nothing gets a row of zeros."""
        seen = visible.dense(*scores.shape[-2:], device=scores.device)
        if seen is None:
            return scores.softmax(-1)
        # Not -inf: a row that sees nothing would be NaN, in value and in gradient.
        lowest = torch.finfo(scores.dtype).min
        return scores.masked_fill(~seen, lowest).softmax(-1).masked_fill(~seen, 0.0)

    @property
    def is_fused(self) -> bool:
        """Whether PyTorch's fused attention computes these weights: not those of a variant."""
        return self.computes_as(SoftmaxAttention, "weights", "scores", "factor", "bias")

    def keeps_weights(self, q: Tensor, want: Want) -> bool:
        """Not where PyTorch's fused attention serves: on a GPU always, on a CPU without dropout."""
        return bool(want) or not self.is_fused or not (q.is_cuda or self.drop_probability == 0)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, visible: Visible, want: Want) -> Attended:
        """See Mechanism."""
        if want or not self.is_fused:
            return super().attend(q, k, v, visible, want)
        T, S = q.shape[-2], k.shape[-2]
        square = visible.causal and T == S and visible.keys is None and visible.pairs is None
        mixed = F.scaled_dot_product_attention(
            q,
            k,
            v,
            attn_mask=None if square else visible.dense(T, S, device=q.device),
            dropout_p=self.drop_probability,
            is_causal=square,
        )
        return Attended(mixed)
