"""Sparsemax (Martins & Astudillo 2016) and 1.5-entmax (Peters et al. 2019): [RL] and [RF] compare with both.

    sparsemax(z) = argmin_p ‖p − z‖²,    entmax15(z) = argmax_p p·z + H_1.5(p),    p on the simplex

z are the scores q_i·k_j/√D of the keys visible to query i. Both come from the `entmax` package. Shapes: B H T S D.
"""

import entmax
import torch
from torch import Tensor

from relumt.attention.mask import AttentionMask
from relumt.attention.mechanism import Mechanism

OUT_OF_SUPPORT = -4.0
"""Below a row's largest score by more than 1 (sparsemax) or 2 (1.5-entmax) every weight is exactly 0."""

LONG_ROW = 64
SORTED_FIRST = 32
"""Of a row of more than LONG_ROW keys the largest SORTED_FIRST scores are sorted, and more where the support is not
among them: the same bits, and once attention is concentrated several times as fast as sorting the row."""


def sorted_first(scores: Tensor) -> int | None:
    """How many of a row's scores entmax is to sort first; None for all.

    On a GPU all: to see whether the support was among them, the CPU would have to wait for it in every layer.
    """
    return SORTED_FIRST if scores.shape[-1] > LONG_ROW and scores.device.type == "cpu" else None


class SparseAttention(Mechanism):
    """Attention whose rows are a sparse projection onto the simplex, with exact zeros."""

    weights_sum_to_one = True

    def projection(self, scores: Tensor) -> Tensor:
        """Rows of scores → rows of weights, [B, H, T, S]."""
        raise NotImplementedError

    def weights(self, scores: Tensor, mask: AttentionMask) -> Tensor:
        """Project scores [B, H, T, S]; a query that sees nothing gets a row of zeros, one with a NaN a row of NaNs."""
        if not scores.numel():
            return scores
        scores = mask.fill_hidden_(scores, torch.finfo(scores.dtype).min)
        largest = scores.detach().amax(-1, keepdim=True)
        # Shifting and flooring the scores changes no weight and no gradient, and keeps the sums over sorted scores
        # exact: with -inf, or a large number, at hidden keys they would not be (entmax issue 30). A NaN would have it
        # index out of bounds.
        floored = (scores - largest).clamp_(min=OUT_OF_SUPPORT).nan_to_num_(OUT_OF_SUPPORT)
        return mask.fill_hidden_(self.projection(floored) + 0 * largest, 0.0)


class SparsemaxAttention(SparseAttention):
    """Sparsemax: the nearest point of the simplex."""

    def projection(self, scores: Tensor) -> Tensor:
        """Sparsemax of each row, [B, H, T, S]."""
        return entmax.sparsemax(scores, dim=-1, k=sorted_first(scores))


class Entmax15Attention(SparseAttention):
    """1.5-entmax: between softmax and sparsemax."""

    def projection(self, scores: Tensor) -> Tensor:
        """1.5-entmax of each row, [B, H, T, S]."""
        return entmax.entmax15(scores, dim=-1, k=sorted_first(scores))
