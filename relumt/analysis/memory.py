"""Measures of feed-forward layers as memories, [RF] §3. Shapes: N positions, h slots, d model size."""

import math

import torch
from torch import Tensor


def variance_ratio(output: Tensor, residual: Tensor) -> Tensor:
    """Variance of the layer's output over that of the residual that it is added to ([RF] Table 1), a scalar.

    Variances are over the d features of a position, as a LayerNorm sees them, and averaged over positions.

    Args:
        output: [N, d].
        residual: [N, d].
    """
    return output.var(-1, correction=0).mean() / residual.var(-1, correction=0).mean()


def top_share(scores: Tensor, percent: float) -> Tensor:
    """Share of the scores' sum that the top `percent` % of slots hold, [N] ([RF] Fig. 2); NaN for a row of zeros.

    The number of slots is rounded up, so that it is at least one.

    Args:
        scores: [N, h], not negative; softmax's sum to 1, those of ReLU are made to.
        percent: above 0, at most 100.

    Raises:
        ValueError: a negative score, or a percentage out of range.
    """
    if not 0 < percent <= 100:
        raise ValueError(f"percent must be above 0 and at most 100, not {percent}")
    if (scores < 0).any():
        raise ValueError("a share of a sum needs scores that are not negative; this activation gives others")
    # Less a hair, or 0.2 % of 1000 slots would be 3: 1000 · 0.2 / 100 is a little more than 2 in binary.
    count = max(1, math.ceil(scores.shape[-1] * percent / 100 - 1e-9))
    return scores.topk(count, dim=-1).values.sum(-1) / scores.sum(-1)


def anisotropy(values: Tensor) -> Tensor:
    """Mean cosine of two different value slots, a scalar ([RF] Eq. 4), in O(h·d).

    Σ_{i≠j} v̂_i·v̂_j = ‖Σ_i v̂_i‖² − h, so no h × h matrix is needed.

    Args:
        values: [h, d], two slots or more, none of them zero.
    """
    slots = values.shape[0]
    if slots < 2:
        raise ValueError("anisotropy is of pairs of slots; there is only one")
    total = torch.nn.functional.normalize(values, dim=-1).sum(0)
    return (total.square().sum() - slots) / (slots * (slots - 1))
