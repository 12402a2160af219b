"""The attention maps of a few sentences, kept whole, to be looked at. Shapes: H T S."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from relumt.atomic_output import atomic_file
from relumt.attention import AttentionMask, AttentionOutput, Need
from relumt.modules.attention import MechanismAttention
from relumt.modules.hooks import attention_hook

SITES_OF_BERTVIZ = {"encoder_attention": "encoder", "decoder_attention": "decoder", "cross_attention": "cross"}


@dataclass
class Sentence:
    """A sentence pair as a model read it.

    Attributes:
        number: in the subset, from 0.
        source: its subwords and end.
        given: what the decoder was given, its own end first; the queries of decoder and cross-attention.
        predicted: what it has to predict of each.
        maps: weights [H, T, S] by attention.
        sites: by attention, "encoder", "decoder" or "cross".
    """

    number: int
    source: list[str]
    given: list[str]
    predicted: list[str]
    maps: dict[str, Tensor] = field(default_factory=dict)
    sites: dict[str, str] = field(default_factory=dict)


class MapCollector:
    """Keeps the maps of the first `count` sentences of a subset.

    Args:
        model: of relumt's architectures.
        task: fairseq's, for its dictionaries.
        count: of sentences.
    """

    def __init__(self, model: nn.Module, task: Any, count: int) -> None:
        self.model = model
        self.dictionaries = task.source_dictionary, task.target_dictionary
        self.count = count
        self.sentences: dict[int, Sentence] = {}

    @contextmanager
    def listening(self, sample: dict[str, Any]) -> Iterator[None]:
        """Keep what the model computes inside the block, on this sample."""
        kept = {row: number for row, number in enumerate(sample["id"].tolist()) if number < self.count}
        if not kept:
            yield
            return
        source, given = sample["net_input"]["src_tokens"], sample["net_input"]["prev_output_tokens"]
        of_source, of_target = (dictionary.pad() for dictionary in self.dictionaries)
        for row, number in kept.items():
            tokens = (source[row], of_source, 0), (given[row], of_target, 1), (sample["target"][row], of_target, 1)
            texts = ([self.dictionaries[side][t] for t in x[x.ne(pad)].tolist()] for x, pad, side in tokens)
            self.sentences[number] = Sentence(number, *texts)

        def keep(name: str, attention: MechanismAttention, result: AttentionOutput, mask: AttentionMask) -> None:
            if result.weights is None:
                return
            queries, q_pad = (source, of_source) if attention.site == "encoder" else (given, of_target)
            keys, k_pad = (given, of_target) if attention.site == "decoder" else (source, of_source)
            for row, number in kept.items():
                weights = result.weights[row][:, queries[row].ne(q_pad)][:, :, keys[row].ne(k_pad)]
                self.sentences[number].maps[name] = weights.float().cpu()
                self.sentences[number].sites[name] = attention.site

        with attention_hook(self.model, keep, Need.WEIGHTS):
            yield

    def result(self) -> list[Sentence]:
        """The sentences in their order."""
        return [self.sentences[number] for number in sorted(self.sentences)]


def save_maps(sentences: list[Sentence], path: Path) -> None:
    """Write sentences to a file that `load_maps` reads."""
    with atomic_file(path) as unfinished:
        torch.save([vars(sentence) for sentence in sentences], unfinished)


def load_maps(path: Path) -> list[Sentence]:
    """The sentences that `relumt analyze` left in maps-*.pt."""
    return [Sentence(**fields) for fields in torch.load(path, weights_only=True)]


def bertviz_arguments(sentence: Sentence) -> dict[str, Any]:
    """What bertviz's `model_view` and `head_view` of an encoder-decoder take, by keyword.

    Attention is a list of [1, H, T, S], a layer each. Keys of the decoder are what it was given.
    """
    attention = {
        name: [weights[None] for key, weights in sentence.maps.items() if sentence.sites[key] == site]
        for name, site in SITES_OF_BERTVIZ.items()
    }
    return attention | {"encoder_tokens": sentence.source, "decoder_tokens": sentence.given}
