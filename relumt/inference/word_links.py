"""Attention and alignment of translations, from cross-attention while the model reads them. Shapes: T S.

T target subwords and S source subwords, each with the end of the sentence.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from relumt.attention import AttentionMask, AttentionOutput, Need
from relumt.inference.translator import BATCH_SIZE, Translation, Translator, batches_by_length
from relumt.metrics.alignment import links_of_largest_weight
from relumt.modules.attention import MechanismAttention
from relumt.modules.hooks import attention_hook


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
def align(
    translator: Translator, translations: Sequence[Translation], batch_size: int = BATCH_SIZE
) -> list[Alignment | None]:
    """Return the alignment of each translation; None if the model has no attention weights, or for an empty text."""
    found: list[Alignment | None] = [None] * len(translations)
    numbers = [number for number, translation in enumerate(translations) if len(translation.target)]
    for batch in batches_by_length([len(translations[number].target) for number in numbers], batch_size):
        batch_numbers = [numbers[index] for index in batch]
        for number, weights in zip(
            batch_numbers, last_cross_attention(translator, [translations[n] for n in batch_numbers]), strict=True
        ):
            found[number] = None if weights is None else Alignment(weights, links_of(weights))
    return found


def last_cross_attention(translator: Translator, translations: Sequence[Translation]) -> list[Tensor | None]:
    """Return the weights [T, S] of the last layer's cross-attention, averaged over heads, for each translation."""
    loaded = translator.loaded
    sample = loaded.collate([x.source for x in translations], [x.target for x in translations])
    layers: list[Tensor | None] = []

    def keep(_: str, attention: MechanismAttention, result: AttentionOutput, mask: AttentionMask) -> None:
        if attention.site == "cross":
            layers.append(
                None if result.weights is None else result.weights.float().mean(1)
            )  # [B, H, T, S] -> [B, T, S]

    with attention_hook(loaded.model, keep, Need.WEIGHTS):
        loaded.model(**sample["net_input"], features_only=True)
    if not layers or layers[-1] is None:
        return [None] * len(translations)
    is_source = sample["net_input"]["src_tokens"].ne(loaded.task.source_dictionary.pad())
    is_target = sample["target"].ne(loaded.task.target_dictionary.pad())
    rows = {
        position: layers[-1][row][is_target[row]][:, is_source[row]].cpu()
        for row, position in enumerate(sample["id"].tolist())
    }
    return [rows[position] for position in range(len(translations))]


def links_of(weights: Tensor) -> list[tuple[int, int]]:
    """Return the links for weights [T, S]; see `Alignment`."""
    if weights.shape[1] < 2:
        return []
    (links,) = links_of_largest_weight(weights[None, :-1, :-1])
    return sorted(links, key=lambda link: link[1])
