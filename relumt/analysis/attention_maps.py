"""Complete attention maps of sentences, for the explorer, plots, bertviz and alignments.

Alignments are scored by their error rate against gold word alignments, [RL] Table 5 and Fig. 4. Pairs are aligned
twice: by the attention weights, and by norm-weighted attention (Kobayashi et al. 2020). A target word is aligned by the
weights of the queries that predict its subwords ("normal"), or of the queries one step later, which have read them
("shifted"; Zenkel et al. 2019). The end-of-sentence symbol of the source is left out. Shapes: H T S.
"""

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from fairseq.data import Dictionary
from fairseq.tasks import FairseqTask
from torch import Tensor, nn

from relumt.analysis.record import AlignmentErrors, AlignmentMetrics, LayerAlignment
from relumt.attention import AttentionOutput
from relumt.attention.metrics.norm_weighted_attention import contribution_norms
from relumt.attention.metrics.words import merge_to_words, word_indices
from relumt.corpora.alignment import (
    GoldAlignment,
    count_links,
    error_rate,
    have_no_first_word,
    links_of_largest_weight,
)
from relumt.errors import UserError
from relumt.files import atomic_file
from relumt.plugin.model.attention import MechanismAttention
from relumt.plugin.model.hooks import BatchTerms, output_terms_hook
from relumt.runs.data_bin import find_subwords
from relumt.runs.inference.loaded_model import LoadedModel
from relumt.runs.inference.search import SearchSettings
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
        subwords: how words are split, see `word_indices`.
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
    subwords: str = "none"

    def site_maps(self, site: str) -> list[Tensor]:
        """Return the maps of a site, from the first layer to the last."""
        return [weights for name, weights in self.maps.items() if self.sites[name] == site]


class MapCollector:
    """Keeps the attention maps of the first sentence pairs of a subset.

    Args:
        model: a model of relumt's architectures.
        task: fairseq's task, for the dictionaries.
        count: number of sentence pairs.
        subwords: segmentation of the data, see `word_indices`.
        use_cross_maps: called with the cross-attention maps of each sentence pair of the subset, in any order.
    """

    def __init__(
        self,
        model: nn.Module,
        task: FairseqTask,
        count: int,
        subwords: str = "none",
        use_cross_maps: Callable[[SentenceMaps], None] | None = None,
    ) -> None:
        self.model, self.task = model, task
        self.count = count
        self.subwords = subwords
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
                    subwords=self.subwords,
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
    subwords = find_subwords(Path(loaded.task.cfg.data), loaded.task.cfg.target_lang)
    for index, source, translation in zip(indices, sources, translations, strict=True):
        collector = MapCollector(loaded.model, loaded.task, 1, subwords)
        sample = loaded.collate([source], [translation])
        with collector.observe(sample), torch.no_grad():
            loaded.force_decode(sample)
        (sentence,) = collector.result()
        sentence.index, sentence.origin = index, "translation"
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


QUERY_SHIFT = {"normal": 0, "shifted": 1}


class AlignmentScorer:
    """Aligns sentence pairs by every head, and by the weights averaged over heads, and compares them with `gold`.

    Args:
        gold: the alignment of every pair of the subset, in order.
        subwords: segmentation of the data, see `word_indices`.
    """

    def __init__(self, gold: Sequence[GoldAlignment], subwords: str) -> None:
        self.gold = gold
        self.subwords = subwords
        self.have_no_first_word = have_no_first_word(gold)
        self.counts: dict[str, dict[str, dict[str, np.ndarray]]] = {"weights": {}, "norms": {}}
        self.num_links_out_of_range = 0
        self.skipped_pairs: set[int] = set()

    def add(self, sentence: SentenceMaps) -> None:
        """Align one pair by the maps of each cross-attention module, and count the links.

        Raises:
            UserError: the links seem to count words from 1.
        """
        modules = [name for name, site in sentence.sites.items() if site == "cross"]
        if not modules:
            return
        source, target = sentence.source[:-1], sentence.target[:-1]
        if self.subwords != "none" and "<unk>" in (*source, *target):
            self.skipped_pairs.add(sentence.index)  # an unknown subword does not tell whether its word continues
            return
        source_words, target_words = word_indices(source, self.subwords), word_indices(target, self.subwords)
        if not source_words or not target_words:
            return
        own = self.gold[sentence.index]
        in_range = frozenset((s, t) for s, t in own.possible if s <= source_words[-1] and t <= target_words[-1])
        self.num_links_out_of_range += len(own.possible - in_range)
        if self.have_no_first_word and own.possible - in_range:
            raise UserError(
                f"gold alignments: pair {sentence.index + 1} links a word after the last, and no pair links word 0, so "
                "words seem to be counted from 1; give --alignments FILE --first-word 1, or if given, correct the file"
            )
        gold = GoldAlignment(own.sure & in_range, in_range)
        for query, shift in QUERY_SHIFT.items():

            def merge(maps: Tensor, shift: int = shift) -> Tensor:
                """[H, T, S] -> [H, target words, source words], without the end-of-sentence symbol of the source."""
                queries = maps[:, shift : shift + len(target_words), :-1]
                return merge_to_words(queries, torch.tensor(target_words), torch.tensor(source_words))

            for name in modules:
                heads = merge(sentence.maps[name])
                self._count("weights", name, query, torch.cat((heads, heads.mean(0, keepdim=True))), gold)
                if name in sentence.norms:
                    norms = torch.cat((sentence.norms[name], sentence.joint_norms[name][None]))
                    self._count("norms", name, query, merge(norms), gold)

    def _count(self, kind: str, name: str, query: str, maps: Tensor, gold: GoldAlignment) -> None:
        """Add the counts of one pair for maps [H + 1, target words, source words], all heads together last."""
        layer = self.counts[kind].setdefault(name, {})
        counts = np.array([count_links(links, gold) for links in links_of_largest_weight(maps)])  # [H + 1, 4]
        layer[query] = layer.get(query, 0) + counts

    def result(self) -> AlignmentMetrics | None:
        """Return the error rates; None for a model without cross-attention weights."""
        if not self.counts["weights"]:
            return None
        weights, norms = (
            {name: LayerAlignment(**{query: _error_rates(counts) for query, counts in layer.items()})
             for name, layer in self.counts[kind].items()}
            for kind in ("weights", "norms")
        )  # fmt: skip
        return AlignmentMetrics(len(self.skipped_pairs), weights, norms)


def _error_rates(counts: np.ndarray) -> AlignmentErrors:
    *heads, together = (100 * error_rate(found) for found in counts.tolist())
    return AlignmentErrors(heads, together)
