"""Complete attention maps of sentences, for the explorer, plots, bertviz and alignments. Shapes: H T S."""

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from fairseq.data import Dictionary
from fairseq.tasks import FairseqTask
from torch import Tensor, nn

from relumt.attention import AttentionOutput
from relumt.attention.metrics.norm_weighted_attention import contribution_norms
from relumt.files import atomic_file
from relumt.plugin.model.attention import MechanismAttention
from relumt.plugin.model.output_terms import BatchTerms, output_terms_hook
from relumt.runs.inference.loaded_model import LoadedModel
from relumt.runs.inference.search_settings import SearchSettings
from relumt.runs.inference.translator import search_hypotheses

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
            for; see `relumt.attention.metrics.norm_weighted_attention`.
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
        use_cross_maps: called with the cross-attention maps of each sentence pair of the subset, in any order.
    """

    def __init__(
        self,
        model: nn.Module,
        task: FairseqTask,
        count: int,
        origin: Origin = "reference",
        use_cross_maps: Callable[[SentenceMaps], None] | None = None,
    ) -> None:
        self.model, self.task = model, task
        self.count = count
        self.origin: Origin = origin
        self.use_cross_maps = use_cross_maps
        self.sentences: dict[int, SentenceMaps] = {}

    @contextmanager
    def observe(self, sample: dict[str, Any]) -> Iterator[None]:
        """Collect the maps that the model computes inside the block, which must run on this batch."""
        source, target = self.task.source_dictionary, self.task.target_dictionary
        inputs = sample["net_input"]
        batch: dict[int, SentenceMaps] = {}  # by row
        for row, index in enumerate(sample["id"].tolist()):
            if index < self.count or self.use_cross_maps:
                batch[row] = SentenceMaps(
                    index,
                    _symbols(inputs["src_tokens"][row], source),
                    _symbols(inputs["prev_output_tokens"][row], target),
                    _symbols(sample["target"][row], target),
                    origin=self.origin,
                )
        if not batch:
            yield
            return
        is_source, is_target = inputs["src_tokens"].ne(source.pad()), inputs["prev_output_tokens"].ne(target.pad())

        def add(name: str, attention: MechanismAttention, result: AttentionOutput, terms: BatchTerms | None) -> None:
            if result.weights is None:
                return
            is_query = is_source if attention.site == "encoder" else is_target
            is_key = is_target if attention.site == "decoder" else is_source
            for row, sentence in batch.items():
                if sentence.index >= self.count and attention.site != "cross":
                    continue
                sentence.sites[name] = attention.site
                # [H, T, S] without padding
                sentence.maps[name] = result.weights[row][:, is_query[row]][:, :, is_key[row]].float().cpu()
                if terms is not None:
                    norms, joint_norms = contribution_norms(terms.select(row, is_query[row], is_key[row]))
                    sentence.norms[name], sentence.joint_norms[name] = norms.float().cpu(), joint_norms.float().cpu()

        with output_terms_hook(self.model, add):
            yield
        for sentence in batch.values():
            if self.use_cross_maps:
                self.use_cross_maps(sentence)
            if sentence.index < self.count:
                self.sentences[sentence.index] = sentence

    def result(self) -> list[SentenceMaps]:
        """Return the first sentence pairs in the order of the subset."""
        return [self.sentences[index] for index in sorted(self.sentences)]


def _symbols(tokens: Tensor, dictionary: Dictionary) -> list[str]:
    return [dictionary[token] for token in tokens.tolist() if token != dictionary.pad()]


def map_pairs(
    loaded: LoadedModel, sources: Sequence[Tensor], translations: Sequence[Tensor], indices: Sequence[int]
) -> list[SentenceMaps]:
    """Return the attention maps of a model that reads each source with its own translation, in order.

    Args:
        loaded: the model.
        sources: token indices, each with the end-of-sentence symbol.
        translations: the same for the target side.
        indices: `SentenceMaps.index` of each pair.
    """
    maps: list[SentenceMaps] = []
    for index, source, translation in zip(indices, sources, translations, strict=True):
        collector = MapCollector(loaded.model, loaded.task, 1, origin="translation")
        sample = loaded.collate([source], [translation])
        with collector.observe(sample), torch.no_grad():
            loaded.force_decode(sample)
        (sentence,) = collector.result()
        sentence.index = index
        maps.append(sentence)
    return maps


def map_own_translations(loaded: LoadedModel, subset: str, count: int, search: SearchSettings) -> list[SentenceMaps]:
    """Return the maps on the model's own translations of the first `count` pairs of a loaded subset.

    Pairs beyond the maximum positions of the model are left out, as they are with references, and empty sources.
    """
    dataset = loaded.task.dataset(subset)
    indices = [index for index in loaded.fitting_indices(subset).tolist() if index < count]
    indices = [index for index in indices if len(dataset[index]["source"]) > 1]
    sources = [dataset[index]["source"] for index in indices]
    found = search_hypotheses(loaded, sources, search)
    return map_pairs(loaded, sources, [hypotheses[0]["tokens"].cpu() for hypotheses in found], indices)


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
