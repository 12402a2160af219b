"""Softmax attention (Vaswani et al. 2017): the baseline of every paper. Shapes: B H T S D.

    s_ij = exp(q_i·k_j/√D) / Σ_l exp(q_i·k_l/√D)

over the keys j and l visible to query i; a query that sees nothing gives 0.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from relumt.attention.mask import AttentionMask
from relumt.attention.mechanism import AttentionOutput, Mechanism, Need


class SoftmaxAttention(Mechanism):
    """Softmax over the visible keys; PyTorch's fused attention serves it where only `mixed` is wanted."""

    weights_sum_to_one = True

    def weights(self, scores: Tensor, mask: AttentionMask) -> Tensor:
        """Softmax of scores [B, H, T, S]; a query that sees nothing gets a row of zeros."""
        seen = mask.to_dense(*scores.shape[-2:], device=scores.device)
        if seen is None:
            return scores.softmax(-1)
        # Not -inf: a row that sees nothing would be NaN, in value and in gradient.
        lowest = torch.finfo(scores.dtype).min
        return scores.masked_fill(~seen, lowest).softmax(-1).masked_fill(~seen, 0.0)

    @property
    def is_fused(self) -> bool:
        """Whether PyTorch's fused attention computes these weights: not those of a variant."""
        return self.computes_as(SoftmaxAttention, "weights", "scores", "factor", "bias")

    def keeps_weights(self, q: Tensor, need: Need) -> bool:
        """Not where PyTorch's fused attention serves: on a GPU always, on a CPU without dropout."""
        return bool(need) or not self.is_fused or not (q.is_cuda or self.dropout_p == 0)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: AttentionMask, need: Need) -> AttentionOutput:
        """See Mechanism."""
        if need or not self.is_fused:
            return super().attend(q, k, v, mask, need)
        T, S = q.shape[-2], k.shape[-2]
        square = mask.is_causal and T == S and mask.key_mask is None and mask.attn_mask is None
        mixed = F.scaled_dot_product_attention(
            q,
            k,
            v,
            attn_mask=None if square else mask.to_dense(T, S, device=q.device),
            dropout_p=self.dropout_p,
            is_causal=square,
        )
        return AttentionOutput(mixed)
