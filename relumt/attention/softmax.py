"""Softmax attention (Vaswani et al. 2017), the baseline of every paper. Shapes: B H T S D.

    s_ij = exp(q_i·k_j/√D) / Σ_l exp(q_i·k_l/√D)

over the keys j and l visible to query i. A query without visible keys gets weights of 0.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from relumt.attention.kernels import dispatch
from relumt.attention.mask import AttentionMask
from relumt.attention.mechanism import AttentionOutput, Mechanism, Need
from relumt.attention.precision import without_autocast
from relumt.attention.tensor_cache import cached_on
from relumt.attention.transforms import add_to


class SoftmaxAttention(Mechanism):
    """Softmax over the visible keys; PyTorch's fused attention computes it where that is faster."""

    weights_sum_to_one = True

    def weights(self, scores: Tensor, mask: AttentionMask) -> Tensor:
        """Return the softmax of scores [B, H, T, S]; a query without visible keys gets a row of zeros."""
        T, S = scores.shape[-2:]
        visible = mask.to_dense(T, S, scores.device)
        if visible is None:
            return scores.softmax(-1)
        # Adding takes a tenth of the time of masked_fill on a CPU. Not −inf: a row without visible keys would be NaN,
        # in value and in gradient. In other rows the weights of hidden keys are rounded to exactly 0. Half of the
        # lowest number, because the lowest minus a large score is −inf.
        low = (visible.to(scores.dtype) - 1) * (torch.finfo(scores.dtype).max / 2)
        weights = add_to(scores, low).softmax(-1)
        return weights if mask.every_query_sees_a_key(T, S, scores.device) else weights.masked_fill(~visible, 0.0)

    def is_fused(self, q: Tensor, k: Tensor, v: Tensor, need: Need) -> bool:
        """Return whether PyTorch's fused attention serves a call. A subclass may compute other weights."""
        if need or not self.inherits_methods(SoftmaxAttention, "weights", "scores", "factor", "bias"):
            return False
        if not q.dtype == k.dtype == v.dtype:
            return False
        return not dispatch.prefers_explicit_softmax(q, k, v, self.dropout_p)

    def saves_weights(self, q: Tensor, k: Tensor, v: Tensor, need: Need) -> bool:
        """Return False where PyTorch's fused attention serves."""
        return not self.is_fused(q, k, v, need)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: AttentionMask, need: Need) -> AttentionOutput:
        """Compute what `forward` returns."""
        if not self.is_fused(q, k, v, need):
            return super().attend(q, k, v, mask, need)
        T, S = q.shape[-2], k.shape[-2]
        # is_causal saves PyTorch the matrix. For T ≠ S it aligns the first query with the first key; we align the last.
        is_causal = mask.is_causal and T == S and mask.key_mask is mask.attn_mask is mask.bias is None
        dense, sees_nothing = (None, None) if is_causal else _let_every_query_see(mask, T, S, q.device)
        if mask.bias is not None:
            bias = mask.bias.to(q.dtype)
            dense = bias if dense is None else bias.masked_fill(~dense, -torch.inf)
        with without_autocast(q):
            output = F.scaled_dot_product_attention(q, k, v, dense, dropout_p=self.dropout_p, is_causal=is_causal)
        return AttentionOutput(output if sees_nothing is None else output.masked_fill(sees_nothing, 0.0))


def _let_every_query_see(
    mask: AttentionMask, T: int, S: int, device: torch.device
) -> tuple[Tensor | None, Tensor | None]:
    """Return a dense mask in which queries without visible keys see all keys, and which queries these are.

    Not every backend returns 0 for such a query (cuDNN's did not), so its output has to be replaced.

    Returns:
        [B or 1, 1, T or 1, S] bool, None without a mask; [B or 1, 1, T or 1, 1] bool, None if all see some.
    """

    def compute(_: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
        dense = mask.to_dense(T, S, device)
        if dense is None:
            return None, None
        sees_nothing = ~dense.any(-1, keepdim=True)
        return dense | sees_nothing, sees_nothing

    if mask.every_query_sees_a_key(T, S, device):
        return mask.to_dense(T, S, device), None
    if mask.key_mask is None or mask.attn_mask is not None:
        return compute(None)
    return cached_on(mask.key_mask, ("every_query_sees", T, S, mask.is_causal), compute)
