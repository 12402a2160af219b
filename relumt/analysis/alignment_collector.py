"""Alignment error rate of cross-attention against gold word alignments, [RL] Table 5 and Fig. 4. Shapes: H T S.

Pairs are aligned twice: by the attention weights, and by norm-weighted attention (Kobayashi et al. 2020).

A target word is aligned by the weights of the queries that predict its subwords ("normal"), or of the queries one step
later, which have read them ("shifted"; Zenkel et al. 2019). The end-of-sentence symbol of the source is left out.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from fairseq.tasks import FairseqTask
from torch import Tensor, nn

from relumt.attention import AttentionOutput
from relumt.metrics.alignment import (
    AlignmentCounts,
    GoldAlignment,
    Links,
    links_of_largest_weight,
)
from relumt.metrics.norm_weighted_attention import contribution_norms
from relumt.metrics.words import merge_to_words, word_indices
from relumt.modules.attention import MechanismAttention
from relumt.modules.output_terms import BatchTerms, output_terms_hook
from relumt.runs.analysis_record import AlignmentErrors, AlignmentMetrics, LayerAlignment

QUERY_SHIFT = {"normal": 0, "shifted": 1}


class AlignmentCollector:
    """Aligns sentence pairs by every head, and by the weights averaged over heads, and compares them with `gold`.

    Args:
        model: a model of relumt's architectures.
        task: fairseq's task, for the dictionaries.
        gold: the alignment of every pair of the subset, in order.
        subwords: segmentation of the data, see `word_indices`.
    """

    def __init__(self, model: nn.Module, task: FairseqTask, gold: Sequence[GoldAlignment], subwords: str) -> None:
        self.model = model
        self.source_dictionary, self.target_dictionary = task.source_dictionary, task.target_dictionary
        self.gold = gold
        self.subwords = subwords
        self.counts: dict[tuple[str, str, str], list[AlignmentCounts]] = {}
        self.links_out_of_range: dict[int, Links] = {}
        self.skipped_pairs: set[int] = set()

    @contextmanager
    def observe(self, sample: dict[str, Any]) -> Iterator[None]:
        """Align the pairs of this batch by what the model computes inside the block."""

        def align(name: str, attention: MechanismAttention, result: AttentionOutput, terms: BatchTerms | None) -> None:
            if attention.site != "cross" or result.weights is None:
                return
            for row, pair in enumerate(sample["id"].tolist()):
                self._align(name, result.weights[row], terms, sample, row, pair)

        with output_terms_hook(self.model, align):
            yield

    def _align(
        self, name: str, weights: Tensor, terms: BatchTerms | None, sample: dict[str, Any], row: int, pair: int
    ) -> None:
        """Count the links of one pair from the weights [H, T, S] of an attention module and, given `terms`, norms."""
        source, target = sample["net_input"]["src_tokens"][row], sample["target"][row]
        real_source = source.ne(self.source_dictionary.pad())
        has_unknown = source.eq(self.source_dictionary.unk()).any() | target.eq(self.target_dictionary.unk()).any()
        if self.subwords != "none" and has_unknown:
            self.skipped_pairs.add(pair)  # an unknown subword does not tell whether its word continues
            return
        real_query = sample["net_input"]["prev_output_tokens"][row].ne(self.target_dictionary.pad())
        source_tokens = [self.source_dictionary[token] for token in source[real_source][:-1].tolist()]
        real_target = target[target.ne(self.target_dictionary.pad())]
        target_tokens = [self.target_dictionary[token] for token in real_target[:-1].tolist()]
        source_words = word_indices(source_tokens, self.subwords)
        target_words = word_indices(target_tokens, self.subwords)
        if not source_words or not target_words:
            return
        gold = self._restrict_gold(pair, source_words[-1] + 1, target_words[-1] + 1)

        def merge(maps: Tensor, shift: int) -> Tensor:
            """[H, T, S] -> [H, target words, source words], without the end-of-sentence symbol of the source."""
            queries = maps[:, shift : shift + len(target_words), :-1].float().cpu()
            return merge_to_words(queries, torch.tensor(target_words), torch.tensor(source_words))

        weights = weights[:, real_query][:, :, real_source]
        norms = None if terms is None else contribution_norms(terms.select(row, real_query, real_source))
        for query, shift in QUERY_SHIFT.items():
            heads = merge(weights, shift)
            self._count("weights", name, query, torch.cat((heads, heads.mean(0, keepdim=True))), gold)
            if norms is not None:
                self._count("norms", name, query, merge(torch.cat((norms[0], norms[1][None])), shift), gold)

    def _count(self, kind: str, name: str, query: str, maps: Tensor, gold: GoldAlignment) -> None:
        """Add the counts of one pair for maps [H + 1, target words, source words], all heads together last."""
        counts = [AlignmentCounts.compare(links, gold) for links in links_of_largest_weight(maps)]
        before = self.counts.get((kind, name, query), [AlignmentCounts()] * len(counts))
        self.counts[kind, name, query] = [a + b for a, b in zip(before, counts, strict=True)]

    def _restrict_gold(self, pair: int, source_words: int, target_words: int) -> GoldAlignment:
        """Return the gold links between existing words, and store the others in `links_out_of_range`."""
        gold = self.gold[pair]
        in_range = frozenset((s, t) for s, t in gold.possible if s < source_words and t < target_words)
        if in_range != gold.possible:
            self.links_out_of_range[pair] = gold.possible - in_range
        return GoldAlignment(gold.sure & in_range, in_range)

    def result(self) -> AlignmentMetrics | None:
        """Return the error rates; None for a model without cross-attention weights."""
        if not self.counts:
            return None
        return AlignmentMetrics(len(self.skipped_pairs), self._layers("weights"), self._layers("norms"))

    def _layers(self, kind: str) -> dict[str, LayerAlignment]:
        names = dict.fromkeys(name for found, name, _ in self.counts if found == kind)
        return {
            name: LayerAlignment(self._errors(kind, name, "normal"), self._errors(kind, name, "shifted"))
            for name in names
        }

    def _errors(self, kind: str, name: str, query: str) -> AlignmentErrors:
        *heads, together = (100 * counts.error_rate for counts in self.counts[kind, name, query])
        return AlignmentErrors(heads, together)
