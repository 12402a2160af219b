"""Attention and alignment of translations, from cross-attention while the model reads them. Shapes: T S.

T target subwords and S source subwords, each with the end of the sentence.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from relumt.attention import AttentionMask, AttentionOutput, Need
from relumt.corpora.alignment import links_of_largest_weight
from relumt.plugin.model.attention import MechanismAttention
from relumt.plugin.model.hooks import attention_hook
from relumt.runs.inference.batching import batches_by_length
from relumt.runs.inference.loaded_model import LoadedModel, TokenPair


@dataclass(frozen=True)
class Alignment:
    """How a translation is aligned with its source.

    Attributes:
        weights: cross-attention of the last layer, averaged over heads, [T, S]; the last row predicts the end of the
            sentence, and the last column is the source's.
        links: (source subword, target subword), counted from 0: for each target subword, the source subword with the
            largest weight; none if all weights are 0. The ends of the sentences are left out.
    """

    weights: Tensor
    links: list[tuple[int, int]]


@torch.no_grad()
def align(loaded: LoadedModel, pairs: Sequence[TokenPair], batch_size: int) -> list[Alignment | None]:
    """Return the alignment of each pair; None if the model has no attention weights, or the target no tokens."""
    found: list[Alignment | None] = [None] * len(pairs)
    numbers = [number for number, (_, target) in enumerate(pairs) if len(target)]
    for batch in batches_by_length([len(pairs[number][1]) for number in numbers], batch_size):
        batch_numbers = [numbers[index] for index in batch]
        weights_of_batch = last_cross_attention(loaded, [pairs[number] for number in batch_numbers])
        for number, weights in zip(batch_numbers, weights_of_batch, strict=True):
            found[number] = None if weights is None else Alignment(weights, find_links(weights))
    return found


def last_cross_attention(loaded: LoadedModel, pairs: Sequence[TokenPair]) -> list[Tensor | None]:
    """Return the weights [T, S] of the last layer's cross-attention, averaged over heads, for each pair."""
    sources, targets = zip(*pairs, strict=True)
    sample = loaded.collate(sources, targets)
    layers: list[Tensor | None] = []

    def keep(_: str, attention: MechanismAttention, result: AttentionOutput, mask: AttentionMask) -> None:
        if attention.site == "cross":
            # [B, H, T, S] -> [B, T, S]
            layers.append(None if result.weights is None else result.weights.float().mean(1))

    with attention_hook(loaded.model, keep, Need.WEIGHTS):
        loaded.model(**sample["net_input"], features_only=True)
    if not layers or layers[-1] is None:
        return [None] * len(pairs)
    is_source = sample["net_input"]["src_tokens"].ne(loaded.task.source_dictionary.pad())
    is_target = sample["target"].ne(loaded.task.target_dictionary.pad())
    rows = {
        position: layers[-1][row][is_target[row]][:, is_source[row]].cpu()
        for row, position in enumerate(sample["id"].tolist())
    }
    return [rows[position] for position in range(len(pairs))]


def find_links(weights: Tensor) -> list[tuple[int, int]]:
    """Return the links for weights [T, S]; see `Alignment`."""
    if weights.shape[1] < 2:
        return []
    (links,) = links_of_largest_weight(weights[None, :-1, :-1])
    return sorted(links, key=lambda link: link[1])
