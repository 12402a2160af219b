"""Measures of attention rows. Shapes: B batch, H heads, T queries, S keys, R rows.

A row holds the weights α_1 … α_S ≥ 0 of one query, exactly 0 where a key is not visible. n is the number of visible
keys, and p = α/Σα the normalized row. Functions return one value per row and head, [R, H]; NaN if it is undefined.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from relumt.attention.row_stats import NULL_WEIGHT_SUM, RowStats


def real_queries(source: Tensor, decoder_input: Tensor, pads: tuple[int, int]) -> dict[str, Tensor]:
    """Return which queries of each site are not padding, [B, T] bool.

    Args:
        source: tokens that the encoder reads, [B, S].
        decoder_input: tokens that the decoder reads, [B, T].
        pads: padding index of the source and of the target dictionary.
    """
    encoder, decoder = source.ne(pads[0]), decoder_input.ne(pads[1])
    return {"encoder": encoder, "decoder": decoder, "cross": decoder}


def sparsity(rows: Tensor, num_visible: Tensor) -> Tensor:
    """Return the share of the visible keys with a weight of exactly 0 ([RL] Fig. 3).

    Args:
        rows: [R, H, S].
        num_visible: n, [R].
    """
    return 1 - rows.count_nonzero(-1) / num_visible.clamp(min=1)[:, None]


def is_null_row(rows: Tensor) -> Tensor:
    """Return which rows put no weight on any key (Σα ≤ 1e-6), [R, H] bool ([RL] Fig. 6)."""
    return rows.sum(-1) <= NULL_WEIGHT_SUM


def entropy(rows: Tensor) -> Tensor:
    """Return H(p) = −Σ_j p_j log p_j in nats ([RF] Tables 3, 5); 0 for a null row, as in the training log."""
    return RowStats.from_weights(rows, rows.new_ones(1)).entropy


def normalize(rows: Tensor) -> Tensor:
    """Return the rows as distributions p, [R, H, S]; NaN for null rows."""
    return rows / rows.sum(-1, keepdim=True).masked_fill(is_null_row(rows)[..., None], math.nan)


def top_share(rows: Tensor, num_visible: Tensor, percents: Sequence[float]) -> Tensor:
    """Return the share of Σα on the top p % of the visible keys ([RF] Fig. 4), [len(percents), R, H].

    These are points of the Lorenz curve of the weights: n·p/100 is rarely a whole number, and the share is interpolated
    linearly between whole numbers of keys. Uniform weights thus have p % of the weight on p % of the keys for every n,
    whereas with rounding the top 0.1% and the top 10% of ten keys would be the same key. NaN for null rows.

    Args:
        rows: [R, H, S].
        num_visible: n, [R].
        percents: each above 0, at most 100.
    """
    ordered = normalize(rows).sort(-1, descending=True).values
    cumulative = torch.nn.functional.pad(ordered.cumsum(-1), (1, 0))  # [R, H, S + 1], from 0 keys to all
    num_keys = num_visible[:, None] * torch.tensor(percents, dtype=torch.float64, device=rows.device) / 100  # [R, P]
    whole = num_keys.floor()
    index = whole.long()[:, None].expand(-1, rows.shape[1], -1)  # [R, P] -> [R, H, P]
    below, above = (cumulative.gather(-1, (index + step).clamp(max=rows.shape[-1])) for step in (0, 1))
    shares = below + (num_keys - whole).to(rows)[:, None] * (above - below)
    return shares.permute(2, 0, 1)  # [R, H, P] -> [P, R, H]


def sink_rate(rows: Tensor, visible: Tensor) -> Tensor:
    """Return the share of Σα on the first key that the query can attend to (arXiv:2410.10781 for causal attention).

    In encoder and cross-attention, this is the first token of the source, in causal attention that of the target's
    prefix. NaN for null rows, and for a row with a single visible key, such as the first of causal attention, whose
    share is 1 in any model.

    Args:
        rows: [R, H, S].
        visible: keys that each query can attend to, [R, S] bool.
    """
    first = visible.int().argmax(-1)[:, None, None].expand(-1, rows.shape[1], 1)  # [R] -> [R, H, 1]
    has_choice = visible.sum(-1) > 1
    return normalize(rows).gather(-1, first).squeeze(-1).masked_fill(~has_choice[:, None], math.nan)


def uniform_sink_rate(num_visible: Tensor) -> Tensor:
    """Return 1/n, what `sink_rate` would be with uniform weights, [R]; NaN for n ≤ 1."""
    return (1 / num_visible).masked_fill(num_visible <= 1, math.nan)


def mean_distance(rows: Tensor, positions: Tensor) -> Tensor:
    """Return Σ_j p_j |i − j|: how many keys away a self-attention query at position i attends. NaN for null rows.

    Args:
        rows: [R, H, S].
        positions: i, [R].
    """
    return mean_over_keys(rows, _distances(rows, positions))


def distant_share(rows: Tensor, positions: Tensor, beyond: int) -> Tensor:
    """Return the share of weight on keys more than `beyond` keys away ([RF] Fig. 5). NaN for null rows."""
    return mean_over_keys(rows, _distances(rows, positions) > beyond)


def mean_over_keys(rows: Tensor, values: Tensor) -> Tensor:
    """Return Σ_j p_j v_j, the mean of the keys' values by weight. NaN for null rows.

    Args:
        rows: [R, H, S].
        values: v, [R, S]; a bool tensor gives the share of the weight on the keys that are True.
    """
    total = (rows @ values.to(rows)[..., None]).squeeze(-1)  # [R, H, S] @ [R, S, 1] -> [R, H]
    return total / rows.sum(-1).masked_fill(is_null_row(rows), math.nan)


def _distances(rows: Tensor, positions: Tensor) -> Tensor:
    keys = torch.arange(rows.shape[-1], device=rows.device)
    return (positions[:, None] - keys).abs()  # [R, S]
