"""Scalable-Softmax, SSMax (Nakanishi 2025, arXiv:2501.19399): softmax that stays sharp in long rows. Shapes: B H T S D.

    s_ij = exp(c_i·z_ij) / Σ_l exp(c_i·z_il),    c_i = s_h·log n_i,    z_ij = q_i·k_j/√D

over the keys j and l visible to query i, n_i of them. s_h is trained for each head. It starts at 0.43, the value of the
paper's first figure; with 10 visible keys c is then 1, as in softmax.
"""

from dataclasses import replace

import torch
from torch import Tensor, nn

from relumt.attention.mask import AttentionMask
from relumt.attention.mechanism import AttentionOutput, Mechanism, Need
from relumt.attention.precision import at_least_float32, cast_saturating
from relumt.attention.softmax import SoftmaxAttention

INITIAL_SCALE = 0.43


class ScalableSoftmaxAttention(SoftmaxAttention):
    """Softmax of scores times s·log n, with s trained for each head.

    Attributes:
        log_scale: s of each head, [H]: the factor of log n, not a logarithm.
    """

    def __init__(self, num_heads: int, head_dim: int, dropout: float = 0.0) -> None:
        super().__init__(num_heads, head_dim, dropout)
        self.log_scale = nn.Parameter(torch.empty(num_heads))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialize s to INITIAL_SCALE."""
        nn.init.constant_(self.log_scale, INITIAL_SCALE)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: AttentionMask, need: Need) -> AttentionOutput:
        """Compute what `forward` returns. The factor goes to the queries, so fused attention can serve the rest.

        Only for fused attention, which takes tensors of one type, are scaled queries rounded to half precision again.
        """
        exact = at_least_float32(q)
        log_n = mask.log_num_visible(q.shape[-2], k.shape[-2], exact)
        # [H] -> [1, H, 1, 1]
        scale = self.log_scale.to(exact.dtype).view(1, -1, 1, 1) * log_n
        scaled = exact * scale
        if mask.bias is not None:
            mask = replace(mask, bias=mask.bias * scale)
        rounded = cast_saturating(scaled, q.dtype)
        if self.is_fused(rounded, k, v, need):
            return super().attend(rounded, k, v, mask, need)
        return Mechanism.attend(self, scaled, k, v, mask, need)
