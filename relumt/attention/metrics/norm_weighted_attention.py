"""Norm-weighted attention: how much each key contributes to an attention module's output, Kobayashi et al. 2020.

Shapes: H heads, T queries, S keys, D head size, E = H·D.

The output of query i is, up to terms that belong to no key, a sum of one vector per head h and key j:

    c_hij = W_O (g_i ⊙ (α_hij ṽ_hj − mean(α_hij ṽ_hj)))

ṽ_hj is v_hj = W_V x_j + b_V in the components of head h and 0 in those of the others. Norm-weighted attention is
‖c_hij‖ for a head and ‖Σ_h c_hij‖ for all heads together, as in the authors' code. Raw weights α ignore that keys can
have short or long values: softmax puts weight on keys that add next to nothing.

Without a norm and a gate on the heads, g_i is 1, no mean is subtracted, and c_hij = α_hij W_O v_hj is the paper's. A
norm divides by a statistic of all keys of the query, and a gate may depend on them: both are held at the values that
they have for this query, as Kobayashi et al. 2021 do for LayerNorm. Then they are linear and part of g_i. A null row
has c_hij = 0 for all keys.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

MAX_ELEMENTS = 1 << 24
"""Numbers in the largest intermediate result; longer sentences are computed in groups of queries."""


@dataclass(frozen=True)
class OutputTerms:
    """What an attention module's output is a sum of, for one sentence.

    Attributes:
        weights: α, [H, T, S].
        values: v, [H, S, D].
        gain: g, [T, E]: norm and gates on the heads' output; None if there are none.
        subtracts_mean: whether the mean over E is subtracted, as LayerNorm does, which has a gain.
        projection: W_O, [size of the output, E].
    """

    weights: Tensor
    values: Tensor
    gain: Tensor | None
    subtracts_mean: bool
    projection: Tensor


def contribution_norms(terms: OutputTerms) -> tuple[Tensor, Tensor]:
    """Return ‖c_hij‖ [H, T, S] and ‖Σ_h c_hij‖ [T, S]."""
    if terms.gain is None:
        return _norms_without_gain(terms)
    H, T, S = terms.weights.shape
    group = max(1, MAX_ELEMENTS // max(1, H * S * len(terms.projection)))
    heads, together = [], []
    for start in range(0, T, group):
        queries = slice(start, start + group)
        vectors = _contributions(terms, queries, terms.gain[queries])
        heads.append(vectors.norm(dim=-1))
        together.append(vectors.sum(0).norm(dim=-1))
    return torch.cat(heads, dim=1), torch.cat(together)


def _norms_without_gain(terms: OutputTerms) -> tuple[Tensor, Tensor]:
    """Return both norms from W_O v_hj, which does not depend on the query: much faster than from all c_hij.

    ‖Σ_h α_h x_h‖² = Σ_hg α_h α_g x_h·x_g. In float64, because vectors of several heads can cancel each other.
    """
    vectors = (terms.values.double() @ _split_projection(terms).double()).transpose(0, 1)  # [H, S, out] -> [S, H, out]
    products = vectors @ vectors.mT  # [S, H, H]
    weights = terms.weights.double()
    heads = weights.abs() * products.diagonal(dim1=1, dim2=2).clamp(min=0).sqrt().T[:, None]  # [S, H] -> [H, 1, S]
    by_key = weights.permute(2, 0, 1)  # [H, T, S] -> [S, H, T]
    squares = (by_key * (products @ by_key)).sum(1).T  # [S, T] -> [T, S]
    return heads.to(terms.weights), squares.clamp(min=0).sqrt().to(terms.weights)


def _split_projection(terms: OutputTerms) -> Tensor:
    """Return W_O of each head, [H, D, size of the output]."""
    H, _, D = terms.values.shape
    per_head: Tensor = terms.projection.unflatten(-1, (H, D)).permute(1, 2, 0)  # [out, E] -> [out, H, D] -> [H, D, out]
    return per_head


def _contributions(terms: OutputTerms, queries: slice, gain: Tensor) -> Tensor:
    """Return c of some queries with gain [queries, E], [H, queries, S, size of the output]."""
    H, _, D = terms.values.shape
    weighted = terms.weights[:, queries, :, None] * terms.values[:, None]  # [H, T, S, D]
    by_head = gain.unflatten(-1, (H, D)).transpose(0, 1)  # [T, E] -> [T, H, D] -> [H, T, D]
    vectors: Tensor = (weighted * by_head[:, :, None]) @ _split_projection(terms)[
        :, None
    ]  # [H, T, S, D] @ [H, 1, D, out]
    if terms.subtracts_mean:
        mean = weighted.sum(-1, keepdim=True) / (H * D)  # over all of E: the other heads' components are 0
        vectors = vectors - mean * (gain @ terms.projection.T)[:, None]  # [T, out] -> [T, 1, out]
    return vectors
