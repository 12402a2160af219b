"""Complete attention maps of a few sentences, for the explorer of the report, plots and bertviz. Shapes: H T S."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from fairseq.tasks import FairseqTask
from torch import Tensor, nn

from relumt.atomic_output import atomic_file
from relumt.attention import AttentionMask, AttentionOutput, Need
from relumt.modules.attention import MechanismAttention
from relumt.modules.hooks import attention_hook

BERTVIZ_SITES = {"encoder_attention": "encoder", "decoder_attention": "decoder", "cross_attention": "cross"}


@dataclass
class SentenceMaps:
    """The tokens of a sentence pair and all attention maps of a model that reads it.

    Attributes:
        index: index of the pair in the subset.
        source: source tokens, the end-of-sentence symbol last.
        decoder_input: tokens that the decoder reads, the end-of-sentence symbol first.
        target: tokens to predict, one for each token of `decoder_input`.
        maps: weights [H, T, S] by attention module.
        sites: "encoder", "decoder" or "cross" by attention module.
    """

    index: int
    source: list[str]
    decoder_input: list[str]
    target: list[str]
    maps: dict[str, Tensor] = field(default_factory=dict)
    sites: dict[str, str] = field(default_factory=dict)

    def site_maps(self, site: str) -> list[Tensor]:
        """Return the maps of a site, from the first layer to the last."""
        return [weights for name, weights in self.maps.items() if self.sites[name] == site]


class MapCollector:
    """Keeps the attention maps of the first sentence pairs of a subset.

    Args:
        model: a model of relumt's architectures.
        task: fairseq's task, for the dictionaries.
        count: number of sentence pairs.
    """

    def __init__(self, model: nn.Module, task: FairseqTask, count: int) -> None:
        self.model = model
        self.source_dictionary, self.target_dictionary = task.source_dictionary, task.target_dictionary
        self.count = count
        self.sentences: dict[int, SentenceMaps] = {}

    @contextmanager
    def observe(self, sample: dict[str, Any]) -> Iterator[None]:
        """Keep the maps that the model computes inside the block, which must run on this batch."""
        index_of_row = {row: index for row, index in enumerate(sample["id"].tolist()) if index < self.count}
        if not index_of_row:
            yield
            return
        source, decoder_input = sample["net_input"]["src_tokens"], sample["net_input"]["prev_output_tokens"]
        source_pad, target_pad = self.source_dictionary.pad(), self.target_dictionary.pad()
        for row, index in index_of_row.items():
            self.sentences[index] = SentenceMaps(
                index,
                [self.source_dictionary[token] for token in source[row].tolist() if token != source_pad],
                [self.target_dictionary[token] for token in decoder_input[row].tolist() if token != target_pad],
                [self.target_dictionary[token] for token in sample["target"][row].tolist() if token != target_pad],
            )

        def keep(name: str, attention: MechanismAttention, result: AttentionOutput, mask: AttentionMask) -> None:
            if result.weights is None:
                return
            real_queries = source.ne(source_pad) if attention.site == "encoder" else decoder_input.ne(target_pad)
            real_keys = decoder_input.ne(target_pad) if attention.site == "decoder" else source.ne(source_pad)
            for row, index in index_of_row.items():
                weights = result.weights[row][:, real_queries[row]][:, :, real_keys[row]]  # [H, T, S] without padding
                self.sentences[index].maps[name] = weights.float().cpu()
                self.sentences[index].sites[name] = attention.site

        with attention_hook(self.model, keep, Need.WEIGHTS):
            yield

    def result(self) -> list[SentenceMaps]:
        """Return the sentence pairs in the order of the subset."""
        return [self.sentences[index] for index in sorted(self.sentences)]


def save_maps(sentences: Sequence[SentenceMaps], path: Path) -> None:
    """Write the maps to a file for `load_maps`."""
    with atomic_file(path) as unfinished:
        torch.save([vars(sentence) for sentence in sentences], unfinished)


def load_maps(path: Path) -> list[SentenceMaps]:
    """Read a file maps-N.pt written by `relumt analyze`."""
    return [SentenceMaps(**fields) for fields in torch.load(path, weights_only=True)]


def bertviz_arguments(sentence: SentenceMaps) -> dict[str, Any]:
    """Return the keyword arguments of bertviz's `model_view` and `head_view` for an encoder-decoder model.

    Each attention argument is a list of [1, H, T, S] tensors, one per layer.
    """
    attention = {argument: [w[None] for w in sentence.site_maps(site)] for argument, site in BERTVIZ_SITES.items()}
    return attention | {"encoder_tokens": sentence.source, "decoder_tokens": sentence.decoder_input}
