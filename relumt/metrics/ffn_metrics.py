"""Measures of feed-forward layers as memories, [RF] §3. Shapes: N positions, h slots, d model size."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor


def feature_variance(x: Tensor) -> Tensor:
    """Variance over the d features of each position, as a LayerNorm sees it: [N, d] → [N]."""
    return x.var(-1, correction=0)


def variance_ratio(output: Tensor, residual: Tensor) -> Tensor:
    """Variance of the layer's output over that of the residual that it is added to ([RF] Table 1), a scalar.

    Variances are over features, and averaged over positions.

    Args:
        output: [N, d].
        residual: [N, d].
    """
    return feature_variance(output).mean() / feature_variance(residual).mean()


def top_share(scores: Tensor, percents: Sequence[float]) -> Tensor:
    """Shares of the scores' sum that the top p % of slots hold ([RF] Fig. 2), [len(percents), N]; NaN for a null row.

    The number of slots is rounded up, so that it is at least one.

    Args:
        scores: [N, h], not negative; softmax's sum to 1, those of ReLU are made to.
        percents: each above 0, at most 100.

    Raises:
        ValueError: a negative score, or a percentage out of range.
    """
    if not all(0 < percent <= 100 for percent in percents):
        raise ValueError(f"percents must be above 0 and at most 100, not {percents}")
    if (scores < 0).any():
        raise ValueError("a share of a sum needs scores that are not negative; this activation gives others")
    # Less a hair, or 0.2 % of 1000 slots would be 3: 1000 · 0.2 / 100 is a little more than 2 in binary.
    counts = [max(1, math.ceil(scores.shape[-1] * percent / 100 - 1e-9)) for percent in percents]
    largest = scores.topk(max(counts), dim=-1).values.cumsum(-1)
    return torch.stack([largest[:, count - 1] for count in counts]) / scores.sum(-1)


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
