"""Alignments of translations by cross-attention. Shapes: H T S.

T target subwords and S source subwords, each with the end of the sentence.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from relumt.attention import AttentionMask, AttentionOutput, Need
from relumt.attention.metrics.words import merge_to_words, word_indices
from relumt.corpora.alignment import links_of_largest_weight
from relumt.plugin.model.attention import MechanismAttention
from relumt.plugin.model.hooks import attention_hook
from relumt.runs.inference.loaded_model import LoadedModel, TokenPair


@dataclass(frozen=True)
class Alignment:
    """How a translation is aligned with its source, by subwords or by words.

    Attributes:
        weights: cross-attention of the last layer, averaged over heads, [T, S]; the last row predicts the end of the
            sentence, and the last column is the source's. Of words, weights are merged as in `merge_to_words`.
        links: (source, target), counted from 0: for each target subword or word, the one of the source with the largest
            weight; none if all weights are 0. The ends of the sentences are left out.
    """

    weights: Tensor
    links: list[tuple[int, int]]


def align_by_weights(weights: Tensor) -> Alignment:
    """Return the alignment for weights [T, S]."""
    if weights.shape[1] < 2:
        return Alignment(weights, [])
    (links,) = links_of_largest_weight(weights[None, :-1, :-1])
    return Alignment(weights, sorted(links, key=lambda link: link[1]))


def merge_words(weights: Tensor, source: Sequence[str], target: Sequence[str], subwords: str) -> Tensor:
    """Return the weights [target words + 1, source words + 1] for weights [T, S].

    Args:
        weights: [T, S].
        source, target: the subwords, without the ends of the sentences.
        subwords: segmentation, see `word_indices`.
    """
    source_words, target_words = (torch.tensor(word_indices([*side, "</s>"], subwords)) for side in (source, target))
    return merge_to_words(weights[None], target_words, source_words)[0]


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
