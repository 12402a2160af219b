"""Sparsemax (Martins & Astudillo 2016) and 1.5-entmax (Peters et al. 2019), baselines of [RL] and [RF].

    sparsemax(z) = argmin_p ‖p − z‖²,    entmax15(z) = argmax_p p·z + H_1.5(p),    p on the simplex

z are the scores q_i·k_j/√D of the keys visible to query i. The `entmax` package computes both. Shapes: B H T S D.
"""

import entmax
import torch
from torch import Tensor

from relumt.attention.mask import AttentionMask
from relumt.attention.mechanism import Mechanism

OUT_OF_SUPPORT = -4.0
"""Scores are raised to at least this, relative to the largest of their row. A weight is 0 at −1 and below in sparsemax,
and at −2 and below in 1.5-entmax."""

LONG_ROW = 64
PARTIAL_SORT_SIZE = 32
"""In a row of more than LONG_ROW keys entmax first sorts only the PARTIAL_SORT_SIZE largest scores, and more if the
support is larger. The result is the same bit by bit, and is computed several times as fast once attention is
concentrated."""


def partial_sort_size(scores: Tensor) -> int | None:
    """Return how many scores of a row entmax is to sort first; None for all.

    On a GPU it is always all: otherwise the CPU would wait for the GPU in every layer, to see whether the support was
    larger.
    """
    return PARTIAL_SORT_SIZE if scores.shape[-1] > LONG_ROW and scores.device.type == "cpu" else None


class SparseAttention(Mechanism):
    """Attention whose weights are a sparse projection of the scores onto the simplex, with exact zeros."""

    weights_sum_to_one = True

    def project(self, scores: Tensor) -> Tensor:
        """Project each row of scores [B, H, T, S] onto the simplex."""
        raise NotImplementedError

    def weights(self, scores: Tensor, mask: AttentionMask) -> Tensor:
        """Project scores [B, H, T, S]; a row is 0 without visible keys, and NaN if it has a NaN."""
        if not scores.numel():
            return scores
        scores = mask.fill_hidden_(scores, torch.finfo(scores.dtype).min)
        largest = scores.detach().amax(-1, keepdim=True)
        # Shifting and clamping changes no weight and no gradient, and keeps entmax's sums over sorted scores exact:
        # -inf or a large number at hidden keys would not (entmax issue 30). entmax indexes out of bounds for a NaN, so
        # a NaN is replaced before it and added back after it.
        clamped = (scores - largest).clamp_(min=OUT_OF_SUPPORT).nan_to_num_(OUT_OF_SUPPORT)
        return mask.fill_hidden_(self.project(clamped) + 0 * largest, 0.0)


class SparsemaxAttention(SparseAttention):
    """Sparsemax: the nearest point of the simplex."""

    def project(self, scores: Tensor) -> Tensor:
        """Return sparsemax of each row, [B, H, T, S]."""
        weights: Tensor = entmax.sparsemax(scores, dim=-1, k=partial_sort_size(scores))
        return weights


class Entmax15Attention(SparseAttention):
    """1.5-entmax: between softmax and sparsemax, with fewer zeros than sparsemax."""

    def project(self, scores: Tensor) -> Tensor:
        """Return 1.5-entmax of each row, [B, H, T, S]."""
        weights: Tensor = entmax.entmax15(scores, dim=-1, k=partial_sort_size(scores))
        return weights
