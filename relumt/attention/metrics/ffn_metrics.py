"""Measures of feed-forward layers as key-value memories, [RF] section 3. Shapes: N positions, h slots, d model size."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor


def feature_variance(x: Tensor) -> Tensor:
    """Return the variance over the features of each position, as LayerNorm computes it: [N, d] -> [N]."""
    return x.var(-1, correction=0)


def top_share(scores: Tensor, percents: Sequence[float]) -> Tensor:
    """Return the share of the total score on the top p % of slots ([RF] Fig. 2), [len(percents), N].

    The number of slots is rounded up, so it is at least one. NaN if all scores of a position are 0.

    Args:
        scores: [N, h], not negative. They need not sum to 1.
        percents: each above 0, at most 100.
    """
    # Subtract a little before rounding up: in floating point, 0.2% of 1000 slots is a little more than 2.
    counts = [max(1, math.ceil(scores.shape[-1] * percent / 100 - 1e-9)) for percent in percents]
    cumulative = scores.topk(max(counts), dim=-1).values.cumsum(-1)
    return torch.stack([cumulative[:, count - 1] for count in counts]) / scores.sum(-1)


def anisotropy(values: Tensor) -> Tensor:
    """Return the mean cosine of two different value slots, a scalar ([RF] Eq. 4), in O(h·d).

    Σ_{i≠j} v̂_i·v̂_j = ‖Σ_i v̂_i‖² − h, so the h × h matrix of cosines is never built.

    Args:
        values: [h, d], at least two slots, none of them zero.
    """
    slots = values.shape[0]
    total = torch.nn.functional.normalize(values, dim=-1).sum(0)
    return (total.square().sum() - slots) / (slots * (slots - 1))
