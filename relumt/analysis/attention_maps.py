"""Complete attention maps of a few sentences, for the explorer, plots and bertviz. Shapes: H heads, T S tokens."""

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from fairseq.tasks import FairseqTask
from torch import Tensor, nn

from relumt.atomic_output import atomic_file
from relumt.attention import AttentionOutput
from relumt.metrics.norm_weighted_attention import contribution_norms
from relumt.modules.attention import MechanismAttention
from relumt.modules.output_terms import BatchTerms, output_terms_hook

Origin = Literal["reference", "translation"]
"""Whether the target that the model reads is the reference or its own translation."""

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
        norms: norm-weighted attention ‖c_hij‖ [H, T, S] by attention module, without modules that it is not defined
            for; see `relumt.metrics.norm_weighted_attention`.
        joint_norms: the same for all heads together, ‖Σ_h c_hij‖ [T, S].
        origin: whether the target is the reference or the model's own translation.
    """

    index: int
    source: list[str]
    decoder_input: list[str]
    target: list[str]
    maps: dict[str, Tensor] = field(default_factory=dict)
    sites: dict[str, str] = field(default_factory=dict)
    norms: dict[str, Tensor] = field(default_factory=dict)
    joint_norms: dict[str, Tensor] = field(default_factory=dict)
    origin: Origin = "reference"

    def site_maps(self, site: str) -> list[Tensor]:
        """Return the maps of a site, from the first layer to the last."""
        return [weights for name, weights in self.maps.items() if self.sites[name] == site]


class MapCollector:
    """Keeps the attention maps of the first sentence pairs of a subset.

    Args:
        model: a model of relumt's architectures.
        task: fairseq's task, for the dictionaries.
        count: number of sentence pairs.
        origin: whether the targets are references or the model's own translations.
    """

    def __init__(self, model: nn.Module, task: FairseqTask, count: int, origin: Origin = "reference") -> None:
        self.model = model
        self.source_dictionary, self.target_dictionary = task.source_dictionary, task.target_dictionary
        self.count = count
        self.origin = origin
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
                origin=self.origin,
            )

        def keep(name: str, attention: MechanismAttention, result: AttentionOutput, terms: BatchTerms | None) -> None:
            if result.weights is None:
                return
            real_queries = source.ne(source_pad) if attention.site == "encoder" else decoder_input.ne(target_pad)
            real_keys = decoder_input.ne(target_pad) if attention.site == "decoder" else source.ne(source_pad)
            for row, index in index_of_row.items():
                sentence = self.sentences[index]
                sentence.sites[name] = attention.site
                # [H, T, S] without padding
                sentence.maps[name] = result.weights[row][:, real_queries[row]][:, :, real_keys[row]].float().cpu()
                if terms is not None:
                    norms, joint_norms = contribution_norms(terms.select(row, real_queries[row], real_keys[row]))
                    sentence.norms[name], sentence.joint_norms[name] = norms.float().cpu(), joint_norms.float().cpu()

        with output_terms_hook(self.model, keep):
            yield

    def result(self) -> list[SentenceMaps]:
        """Return the sentence pairs in the order of the subset."""
        return [self.sentences[index] for index in sorted(self.sentences)]


def save_maps(sentences: Sequence[SentenceMaps], path: Path) -> None:
    """Write the maps to a file for `load_maps`."""
    buffer = io.BytesIO()  # because torch.save does not pass on the error of a full disk
    torch.save([vars(sentence) for sentence in sentences], buffer)
    with atomic_file(path) as unfinished:
        unfinished.write_bytes(buffer.getbuffer())


def load_maps(path: Path) -> list[SentenceMaps]:
    """Read a file maps-N.pt written by `relumt analyze`."""
    return [SentenceMaps(**fields) for fields in torch.load(path, weights_only=True)]


def bertviz_arguments(sentence: SentenceMaps) -> dict[str, Any]:
    """Return the keyword arguments of bertviz's `model_view` and `head_view` for an encoder-decoder model.

    Each attention argument is a list of [1, H, T, S] tensors, one per layer.
    """
    attention = {argument: [w[None] for w in sentence.site_maps(site)] for argument, site in BERTVIZ_SITES.items()}
    return attention | {"encoder_tokens": sentence.source, "decoder_tokens": sentence.decoder_input}
