"""Softmax attention (Vaswani et al. 2017), the baseline of every paper. Shapes: B H T S D.

    s_ij = exp(q_i·k_j/√D) / Σ_l exp(q_i·k_l/√D)

over the keys j and l visible to query i. A query without visible keys gets weights of 0.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from relumt.attention.mask import AttentionMask
from relumt.attention.mechanism import AttentionOutput, Mechanism, Need


class SoftmaxAttention(Mechanism):
    """Softmax over the visible keys; PyTorch's fused attention computes it if only the output is needed."""

    weights_sum_to_one = True

    def weights(self, scores: Tensor, mask: AttentionMask) -> Tensor:
        """Return the softmax of scores [B, H, T, S]; a query without visible keys gets a row of zeros."""
        T, S = scores.shape[-2:]
        visible = mask.to_dense(T, S, scores.device)
        if visible is None:
            return scores.softmax(-1)
        # Not -inf: a row without visible keys would be NaN, in value and in gradient.
        lowest = torch.finfo(scores.dtype).min
        return scores.masked_fill(~visible, lowest).softmax(-1).masked_fill(~visible, 0.0)

    @property
    def is_fused(self) -> bool:
        """Whether PyTorch's fused attention computes this class's weights; a subclass may compute others."""
        return self.inherits_methods(SoftmaxAttention, "weights", "scores", "factor", "bias")

    def saves_weights(self, q: Tensor, need: Need) -> bool:
        """Return False where PyTorch's fused attention serves: always on a GPU, without dropout on a CPU."""
        return bool(need) or not self.is_fused or not (q.is_cuda or self.dropout_p == 0)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: AttentionMask, need: Need) -> AttentionOutput:
        """Compute what `forward` returns, with PyTorch's fused attention if only the output is needed."""
        if need or not self.is_fused:
            return super().attend(q, k, v, mask, need)
        T, S = q.shape[-2], k.shape[-2]
        # is_causal saves PyTorch the matrix. For T ≠ S it aligns the first query with the first key; we align the last.
        is_causal = mask.is_causal and T == S and mask.key_mask is None and mask.attn_mask is None
        dense = None if is_causal else mask.to_dense(T, S, q.device)
        return AttentionOutput(
            F.scaled_dot_product_attention(q, k, v, dense, dropout_p=self.dropout_p, is_causal=is_causal)
        )
