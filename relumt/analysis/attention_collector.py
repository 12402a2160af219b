"""What attentions do on a test set, by layer, site and head. Shapes: B H T S; R real query rows.

Everything is added up while the model reads the references: memory grows with layers × heads and one batch's maps.
"""

import math
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import variance
from typing import Any

import torch
from torch import Tensor, nn

from relumt.attention import AttentionMask, AttentionOutput, Need
from relumt.metrics import attention_metrics as rows
from relumt.metrics import head_diversity as diversity
from relumt.modules.attention import MechanismAttention
from relumt.modules.hooks import attention_hook, named_attentions

PERCENTS = (1, 2, 5, 10, 20, 50)
"""Of the visible keys, at which the share of the weight is taken."""

DISTANT = 10
"""Tokens beyond which a key of self-attention counts as distant."""


@dataclass
class _Sums:
    """Of one attention over all rows so far: each measure's sum over the rows that have one, and their number."""

    rows: int = 0
    totals: dict[str, Tensor] = field(default_factory=dict)
    counts: dict[str, Tensor] = field(default_factory=dict)

    def add(self, name: str, values: Tensor) -> None:
        """Add a measure's values, [..., R, H] or [R, 1]; NaN where a row has none."""
        there = ~values.isnan()
        total, count = values.double().where(there, 0.0).sum(-2).cpu(), there.sum(-2).cpu()
        self.totals[name] = self.totals[name] + total if name in self.totals else total
        self.counts[name] = self.counts[name] + count if name in self.counts else count

    def mean(self, name: str) -> list[Any] | None:
        """By head, None for a head whose rows had none; None if the measure does not apply."""
        if name not in self.totals:
            return None
        means = self.totals[name] / self.counts[name]
        return _without_nan(means.tolist())


def _without_nan(values: Any) -> Any:
    if isinstance(values, list):
        return [_without_nan(value) for value in values]
    return None if values != values else values


class _Listening:
    """Adds up, batch by batch, what `_add` takes from each attention of `model` at the queries that are no padding.

    Args:
        model: of relumt's architectures; a stock one has no attention to tap.
        pad: the index of padding in its dictionaries.
    """

    need: Need

    def __init__(self, model: nn.Module, pad: int) -> None:
        self.model = model
        self.pad = pad
        self.sums: dict[str, _Sums] = defaultdict(_Sums)

    @contextmanager
    def listening(self, sample: dict[str, Any]) -> Iterator[None]:
        """Add what the model computes inside the block, on this sample."""
        net_input = sample["net_input"]
        real = rows.real_queries(net_input["src_tokens"], net_input["prev_output_tokens"], (self.pad, self.pad))

        def add(name: str, attention: MechanismAttention, result: AttentionOutput, mask: AttentionMask) -> None:
            self._add(name, attention, result, mask, real[attention.site])

        with attention_hook(self.model, add, self.need):
            yield

    def _add(
        self, name: str, attention: MechanismAttention, result: AttentionOutput, mask: AttentionMask, real: Tensor
    ) -> None:
        raise NotImplementedError


class AttentionCollector(_Listening):
    """Adds up every measure of attention."""

    need = Need.WEIGHTS

    def _add(
        self, name: str, attention: MechanismAttention, result: AttentionOutput, mask: AttentionMask, real: Tensor
    ) -> None:
        if result.weights is None:
            return
        sums = self.sums[name]
        B, _, T, S = result.weights.shape
        of_rows, seen = rows.rows_of(result.weights, mask, real)
        sums.rows += len(of_rows)
        sparsity = rows.sparsity(of_rows, seen)
        sums.add("sparsity", sparsity)
        if attention.mechanism.has_negative_weights:
            return
        null, entropy = rows.null(of_rows), rows.entropy(of_rows)
        sums.add("null_rate", null.float())
        sums.add("entropy", entropy)
        sums.add("entropy_not_null", entropy.masked_fill(null, math.nan))
        sums.add("sparsity_not_null", sparsity.masked_fill(null, math.nan))
        sums.add("top_share", rows.top_share(of_rows, seen, PERCENTS))
        if attention.site != "cross":
            positions = torch.arange(T, device=of_rows.device).expand(B, T)[real]
            sums.add("distance", rows.distance(of_rows, positions))
            sums.add("distant_share", rows.distant_share(of_rows, positions, DISTANT))
        if attention.mechanism.weights_sum_to_one:
            sums.add("diversity", diversity.divergence(of_rows)[:, None])
            return
        dense = mask.to_dense(T, S, of_rows.device)
        keys = torch.ones_like(of_rows[:, 0], dtype=torch.bool) if dense is None else dense[:, 0].expand(B, T, S)[real]
        for tau in diversity.TEMPERATURES:
            p = diversity.renormalised(of_rows, keys, tau)
            sums.add(f"diversity {tau}", diversity.divergence(p)[:, None])

    def result(self) -> dict[str, dict[str, Any]]:
        """By attention, e.g. "decoder.layers.0.encoder_attn": see `describe`; without weights None."""
        found = named_attentions(self.model)
        return {name: self.describe(found[name], self.sums[name]) if name in self.sums else None for name in found}

    def describe(self, attention: MechanismAttention, sums: _Sums) -> dict[str, Any]:
        """The measures of an attention, by head where not said otherwise; None where one does not apply.

        Without entropy, shares and the like are mechanisms whose weights can be negative; distances are of
        self-attention. Shares, distances and what is called so are means over the rows that are not null. diversity: of
        all heads, by τ; under "p" where the weights are distributions themselves. null_variance: of the heads' rates, a
        sample's (the 0.256 that [RL] Fig. 6 has is more than a population's in 0–1 can be); None for one head.
        """
        shares = sums.mean("top_share")
        null_rate = sums.mean("null_rate")
        taus = {str(tau): sums.mean(f"diversity {tau}") for tau in diversity.TEMPERATURES}
        of_heads = {"p": sums.mean("diversity")} | taus
        return {
            "site": attention.site,
            "mechanism": type(attention.mechanism).__name__,
            "queries": sums.rows,
            "sparsity": sums.mean("sparsity"),
            "null_rate": null_rate,
            "null_variance": None if null_rate is None or len(null_rate) < 2 else variance(null_rate),
            "entropy": sums.mean("entropy"),
            "entropy_not_null": sums.mean("entropy_not_null"),
            "sparsity_not_null": sums.mean("sparsity_not_null"),
            "top_share": None if shares is None else dict(zip(map(str, PERCENTS), shares, strict=True)),
            "distance": sums.mean("distance"),
            "distant_share": sums.mean("distant_share"),
            "diversity": {tau: value[0] for tau, value in of_heads.items() if value is not None},
        }


class NullRates(_Listening):
    """Adds up null rows alone, by attention and head, which needs no map of weights."""

    need = Need.ROW_STATS

    def _add(
        self, name: str, attention: MechanismAttention, result: AttentionOutput, mask: AttentionMask, real: Tensor
    ) -> None:
        if result.row_stats is not None:
            self.sums[name].add("null_rate", result.row_stats.is_null.transpose(1, 2)[real].float())

    def result(self) -> dict[str, list[float]]:
        """Share of null rows by attention, each by head; nothing for mechanisms without statistics."""
        return {name: sums.mean("null_rate") for name, sums in self.sums.items()}
