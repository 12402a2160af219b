"""Measures of attention rows. Shapes: R query rows, H heads, S keys.

A row is the weights α_1 … α_S ≥ 0 of a query, exactly 0 where a key is not visible; n is the number of keys that are,
t = Σ_j α_j and p = α/t. Functions give one number a row and head, [R, H]; NaN where a row has none.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from relumt.attention import AttentionMask
from relumt.attention.row_stats import NULL_WEIGHT_SUM, RowStats


def real_queries(source: Tensor, given: Tensor, pads: tuple[int, int]) -> dict[str, Tensor]:
    """Which queries are no padding, by site, [B, T] bool.

    Args:
        source: tokens that the encoder reads, [B, S].
        given: tokens that the decoder is given, [B, T].
        pads: index of padding in the source's dictionary and in the target's.
    """
    encoder, decoder = source.ne(pads[0]), given.ne(pads[1])
    return {"encoder": encoder, "decoder": decoder, "cross": decoder}


def rows_of(weights: Tensor, mask: AttentionMask, real: Tensor) -> tuple[Tensor, Tensor]:
    """The rows of a batch's weights [B, H, T, S] at the queries that are `real` [B, T]: [R, H, S], and n, [R]."""
    B, _, T, S = weights.shape
    seen = mask.count_visible(T, S, weights.device)[:, 0, :, 0].expand(B, T)[real]
    return weights.transpose(1, 2)[real], seen


def sparsity(weights: Tensor, seen: Tensor) -> Tensor:
    """Share of the visible keys whose weight is exactly 0 ([RL] Fig. 3).

    Args:
        weights: [R, H, S].
        seen: n, [R].
    """
    return 1 - weights.count_nonzero(-1) / seen.clamp(min=1)[:, None]


def null(weights: Tensor) -> Tensor:
    """Which rows give nothing ([RL] Fig. 6): t ≤ 1e-6, [R, H] bool."""
    return weights.sum(-1) <= NULL_WEIGHT_SUM


def entropy(weights: Tensor) -> Tensor:
    """H(p) = −Σ_j p_j log p_j in nats ([RF] Tables 3, 5); 0 for a null row, as in the log of training."""
    return RowStats.from_weights(weights, weights.new_ones(1)).entropy


def normalised(weights: Tensor) -> Tensor:
    """The rows as distributions p, [R, H, S]; NaN for null rows."""
    return weights / weights.sum(-1, keepdim=True).masked_fill(null(weights)[..., None], math.nan)


def top_share(weights: Tensor, seen: Tensor, percents: Sequence[float]) -> Tensor:
    """Share of t that the top p % of the visible keys hold ([RF] Fig. 4), [len(percents), R, H]; NaN for null rows.

    The number of keys is rounded up, so that it is at least one.

    Args:
        weights: [R, H, S].
        seen: n, [R].
        percents: each above 0, at most 100.
    """
    # Less a hair, as in memory.top_share: binary fractions are a little off.
    counts = torch.stack([(seen * (percent / 100) - 1e-9).ceil().clamp(min=1) for percent in percents]).long()
    held = normalised(weights).sort(-1, descending=True).values.cumsum(-1)
    places = (counts - 1)[:, :, None, None].expand(-1, -1, weights.shape[1], 1)
    return held.expand(len(percents), *held.shape).gather(-1, places).squeeze(-1)


def distance(weights: Tensor, positions: Tensor) -> Tensor:
    """Σ_j p_j |i − j|, how far from its own position i a query of self-attention looks; NaN for null rows.

    Args:
        weights: [R, H, S].
        positions: i, [R].
    """
    return (normalised(weights) * _distances(weights, positions)).sum(-1)


def distant_share(weights: Tensor, positions: Tensor, beyond: int) -> Tensor:
    """Σ_j p_j over the keys j more than `beyond` tokens away, [RF] Fig. 5's claim as a number; NaN for null rows."""
    return (normalised(weights) * (_distances(weights, positions) > beyond)).sum(-1)


def _distances(weights: Tensor, positions: Tensor) -> Tensor:
    keys = torch.arange(weights.shape[-1], device=weights.device)
    return (positions[:, None] - keys).abs()[:, None]
