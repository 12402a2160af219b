"""Alignment error of the cross-attentions of a model against alignments by hand, [RL] Table 5 and Fig. 4.

A target word's weights are those of the queries that predict its subwords ("normal"), or of those that are given them,
one step later ("shifted"; Zenkel et al. 2019). The end of the source sentence is left out. Shapes: H T S.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from statistics import mean
from typing import Any

from torch import Tensor, nn

from relumt.attention import AttentionMask, AttentionOutput, Need
from relumt.metrics.alignment import Agreement, Gold, Links, best_links, of_words, word_numbers
from relumt.modules.attention import MechanismAttention
from relumt.modules.hooks import attention_hook

SHIFTS = {"normal": 0, "shifted": 1}


class AlignmentCollector:
    """Aligns every sentence pair by every head and by their mean, and counts how that agrees with `gold`.

    Args:
        model: of relumt's architectures.
        task: fairseq's, for its dictionaries.
        gold: of every pair of the subset, in order.
        subwords: kind of segmentation, see `word_numbers`.
    """

    def __init__(self, model: nn.Module, task: Any, gold: Sequence[Gold], subwords: str) -> None:
        self.model = model
        self.dictionaries = task.source_dictionary, task.target_dictionary
        self.gold = gold
        self.subwords = subwords
        self.agreements: dict[tuple[str, str], list[Agreement]] = {}
        self.beyond: dict[int, Links] = {}
        self.unknown: set[int] = set()

    @contextmanager
    def listening(self, sample: dict[str, Any]) -> Iterator[None]:
        """Align the pairs of this sample by what the model computes inside the block."""

        def align(name: str, attention: MechanismAttention, result: AttentionOutput, mask: AttentionMask) -> None:
            if attention.site != "cross" or result.weights is None:
                return
            for row, pair in enumerate(sample["id"].tolist()):
                self._align(name, result.weights[row], sample, row, pair)

        with attention_hook(self.model, align, Need.WEIGHTS):
            yield

    def _align(self, name: str, weights: Tensor, sample: dict[str, Any], row: int, pair: int) -> None:
        """Add one pair's alignments by one attention's weights [H, T, S]."""
        source_pad, target_pad = (dictionary.pad() for dictionary in self.dictionaries)
        source, target = sample["net_input"]["src_tokens"][row], sample["target"][row]
        real_source = source.ne(source_pad)
        if self.subwords != "none" and self._is_unknown(source, 0) | self._is_unknown(target, 1):
            self.unknown.add(pair)
            return
        given = sample["net_input"]["prev_output_tokens"][row].ne(target_pad)
        kept = weights[:, given][:, :, real_source][:, :, :-1].float().cpu()
        source_words = word_numbers(self._symbols(source[real_source][:-1], 0), self.subwords)
        target_words = word_numbers(self._symbols(target[target.ne(target_pad)][:-1], 1), self.subwords)
        if not source_words or not target_words:
            return
        gold = self._within(pair, source_words[-1] + 1, target_words[-1] + 1)
        for kind, shift in SHIFTS.items():
            by_head = of_words(kept[:, shift : shift + len(target_words)], target_words, source_words)
            links = [*best_links(by_head), *best_links(by_head.mean(0, keepdim=True))]
            found = [Agreement.of(one, gold) for one in links]
            before = self.agreements.get((name, kind), [Agreement()] * len(found))
            self.agreements[name, kind] = [a + b for a, b in zip(before, found, strict=True)]

    def _is_unknown(self, tokens: Tensor, side: int) -> bool:
        """Whether the dictionary lacks a subword; then nothing says whether its word goes on after it."""
        return bool(tokens.eq(self.dictionaries[side].unk()).any())

    def _symbols(self, tokens: Tensor, side: int) -> list[str]:
        return [self.dictionaries[side][token] for token in tokens.tolist()]

    def _within(self, pair: int, source_words: int, target_words: int) -> Gold:
        """The pair's links without those beyond its words, which are remembered in `beyond`."""
        gold = self.gold[pair]
        inside = frozenset((s, t) for s, t in gold.possible if s < source_words and t < target_words)
        if inside != gold.possible:
            self.beyond[pair] = gold.possible - inside
        return Gold(gold.sure & inside, inside)

    def result(self) -> dict[str, Any] | None:
        """AER in percent; None for a model without cross-attention weights.

        unknown: pairs left out, since a subword of theirs is not in the dictionary. layers: by attention and kind, that
        of each head, of the best one, and of the heads' mean weights. AoH, AoL: the means over layers of the best
        head's and the mean weights', by kind.
        """
        if not self.agreements:
            return None
        layers: dict[str, dict[str, Any]] = {}
        for (name, kind), agreements in self.agreements.items():
            *heads, of_mean = (100 * agreement.error_rate for agreement in agreements)
            layers.setdefault(name, {})[kind] = {"heads": heads, "best": min(heads), "average": of_mean}
        over_layers = {
            kind: {
                "AoL": mean(layer[kind]["average"] for layer in layers.values()),
                "AoH": mean(layer[kind]["best"] for layer in layers.values()),
            }
            for kind in SHIFTS
        }
        return {"unknown": len(self.unknown), "layers": layers, **over_layers}
