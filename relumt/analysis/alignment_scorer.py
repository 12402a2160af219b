"""Alignment error rate of cross-attention against gold word alignments, [RL] Table 5 and Fig. 4. Shapes: H T S.

Pairs are aligned twice: by the attention weights, and by norm-weighted attention (Kobayashi et al. 2020).

A target word is aligned by the weights of the queries that predict its subwords ("normal"), or of the queries one step
later, which have read them ("shifted"; Zenkel et al. 2019). The end-of-sentence symbol of the source is left out.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from relumt.analysis.attention_maps import SentenceMaps
from relumt.analysis.record import AlignmentErrors, AlignmentMetrics, LayerAlignment
from relumt.attention.metrics.words import merge_to_words, word_indices
from relumt.corpora.alignment import GoldAlignment, count_links, error_rate, links_of_largest_weight

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
        self.counts: dict[str, dict[str, dict[str, np.ndarray]]] = {"weights": {}, "norms": {}}
        self.num_links_out_of_range = 0
        self.skipped_pairs: set[int] = set()

    def add(self, sentence: SentenceMaps) -> None:
        """Align one pair by the maps of each cross-attention module, and count the links."""
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
