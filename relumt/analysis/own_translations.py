"""Attention maps of a model on its own translations, which it reads after a beam search as if they were references."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from relumt.analysis.attention_maps import MapCollector, SentenceMaps
from relumt.inference.loaded_model import LoadedModel
from relumt.inference.search_settings import SearchSettings
from relumt.inference.translator import search_hypotheses


def map_pairs(loaded: LoadedModel, sources: Sequence[Tensor], translations: Sequence[Tensor]) -> list[SentenceMaps]:
    """Return the attention maps of a model that reads each source with its own translation, in order.

    Args:
        loaded: the model.
        sources: token indices, each with the end-of-sentence symbol.
        translations: the same for the target side.
    """
    maps: list[SentenceMaps] = []
    for source, translation in zip(sources, translations, strict=True):
        collector = MapCollector(loaded.model, loaded.task, 1, origin="translation")
        sample = loaded.collate([source], [translation])
        with collector.observe(sample), torch.no_grad():
            loaded.force_decode(sample)
        maps.append(replace(collector.result()[0], index=len(maps)))
    return maps


def map_own_translations(loaded: LoadedModel, subset: str, count: int, search: SearchSettings) -> list[SentenceMaps]:
    """Return the maps on the model's own translations of the first `count` pairs of a loaded subset.

    Pairs beyond the maximum positions of the model are left out, as they are with references, and empty sources.
    """
    dataset = loaded.task.dataset(subset)
    indices = [index for index in loaded.fitting_indices(subset).tolist() if index < count]
    sources = [dataset[index]["source"] for index in indices]
    found = search_hypotheses(loaded, sources, search)
    pairs = [
        (index, source, hypotheses[0]["tokens"].cpu())
        for index, source, hypotheses in zip(indices, sources, found, strict=True)
        if hypotheses
    ]
    maps = map_pairs(loaded, [source for _, source, _ in pairs], [translation for *_, translation in pairs])
    return [replace(sentence, index=index) for (index, *_), sentence in zip(pairs, maps, strict=True)]
