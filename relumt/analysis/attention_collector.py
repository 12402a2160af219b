"""Measures of attention on a test set, by module and head. Shapes: B H T S; R rows of real queries, K keys.

Measures are summed while the model reads the references, so memory holds one batch's attention maps at a time.
"""

import math
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import variance
from typing import Any

from torch import Tensor, nn

from relumt.analysis.units import AttentionRows, BatchReader, SiteTokens
from relumt.attention import AttentionMask, AttentionOutput, Need
from relumt.attention.row_stats import NULL_WEIGHT_SUM
from relumt.metrics import attention_metrics as metrics
from relumt.metrics import head_diversity
from relumt.modules.attention import MechanismAttention
from relumt.modules.hooks import attention_hook, named_attentions
from relumt.runs.analysis_record import AttentionMetrics, PerHead, mean_over_heads

TOP_PERCENTS = (*(tenths / 10 for tenths in range(1, 16)), 2, 5, 10, 20, 50)
"""Percentages of the visible keys for `top_share`: 0.1 to 1.5 as in [RF] Fig. 4, and a few more."""

DISTANT = 10
"""A key more than this many tokens away from a self-attention query counts as distant."""

DIVERSITY_KEYS = ("normalized", *head_diversity.TEMPERATURES)


class RunningMeans:
    """Means over rows of several named measures of one attention module."""

    def __init__(self) -> None:
        self.num_rows = 0
        self.totals: dict[str, Tensor] = {}
        self.counts: dict[str, Tensor] = {}

    def add(self, name: str, values: Tensor) -> None:
        """Add the values [..., R, H] of a measure; rows with NaN are left out of its mean."""
        is_defined = ~values.isnan()
        total, count = values.double().where(is_defined, 0.0).sum(-2).cpu(), is_defined.sum(-2).cpu()
        self.totals[name] = self.totals[name] + total if name in self.totals else total
        self.counts[name] = self.counts[name] + count if name in self.counts else count

    def heads(self, name: str) -> PerHead | None:
        """Return the mean of each head, None for a head without values; None if the measure was never added."""
        return _nan_to_none(self.totals[name] / self.counts[name]) if name in self.totals else None


def _nan_to_none(values: Tensor) -> PerHead:
    return [None if math.isnan(value) else value for value in values.tolist()]


def _repeat_over_heads(values: Tensor, is_null: Tensor) -> Tensor:
    """Return values [R] of rows for each head, NaN where its row is null: [R, H]."""
    return values[:, None].expand(is_null.shape).masked_fill(is_null, math.nan)


class _RowCollector(ABC):
    """Hands each attention result of a model to `_add`.

    Args:
        model: a model of relumt's architectures.
        reader: says what the queries and keys of a batch are.
    """

    need: Need

    def __init__(self, model: nn.Module, reader: BatchReader) -> None:
        self.model = model
        self.reader = reader
        self.means: dict[str, RunningMeans] = defaultdict(RunningMeans)

    @contextmanager
    def observe(self, sample: dict[str, Any]) -> Iterator[None]:
        """Add what the model computes inside the block, which must run on this batch."""
        tokens = self.reader.read(sample)

        def add(name: str, attention: MechanismAttention, result: AttentionOutput, mask: AttentionMask) -> None:
            self._add(name, attention, result, mask, tokens[attention.site])

        with attention_hook(self.model, add, self.need):
            yield

    @abstractmethod
    def _add(
        self, name: str, attention: MechanismAttention, result: AttentionOutput, mask: AttentionMask, tokens: SiteTokens
    ) -> None:
        """Add one attention result, whose queries and keys are `tokens`."""


class AttentionCollector(_RowCollector):
    """Collects every measure of attention."""

    need = Need.WEIGHTS

    def _add(
        self, name: str, attention: MechanismAttention, result: AttentionOutput, mask: AttentionMask, tokens: SiteTokens
    ) -> None:
        if result.weights is None:
            return
        selected = tokens.select_rows(result.weights, mask)
        rows, num_visible = selected.weights, selected.num_visible
        means = self.means[name]
        means.num_rows += len(rows)
        sparsity = metrics.sparsity(rows, num_visible)
        means.add("sparsity", sparsity)
        if attention.mechanism.has_negative_weights:
            return  # the other measures need p = α/Σα to be a distribution
        is_null, entropy = metrics.is_null_row(rows), metrics.entropy(rows)
        means.add("null_rate", is_null.float())
        means.add("entropy", entropy)
        means.add("entropy_non_null", entropy.masked_fill(is_null, math.nan))
        means.add("sparsity_non_null", sparsity.masked_fill(is_null, math.nan))
        means.add("top_share", metrics.top_share(rows, num_visible, TOP_PERCENTS))
        means.add("sink_rate", metrics.sink_rate(rows, selected.visible))
        # What uniform weights would give is compared with a share of the weight, so both need the same rows.
        means.add("sink_rate_uniform", _repeat_over_heads(metrics.uniform_sink_rate(num_visible), is_null))
        if selected.is_stop_word is not None:
            means.add("stop_word_share", metrics.mean_over_keys(rows, selected.is_stop_word))
            num_stop_words = (selected.is_stop_word & selected.visible).sum(-1)
            means.add("stop_word_rate", _repeat_over_heads(num_stop_words / num_visible, is_null))
        if attention.site != "cross":
            means.add("distance", metrics.mean_distance(rows, selected.positions))
            means.add("distant_share", metrics.distant_share(rows, selected.positions, DISTANT))
        self._add_diversity(means, attention, selected)

    def _add_diversity(self, means: RunningMeans, attention: MechanismAttention, selected: AttentionRows) -> None:
        """Add the head diversity of the normalized weights, and of their softmax unless they are distributions."""
        distributions = {"normalized": head_diversity.normalize_with_dummy(selected.weights)}
        if not attention.mechanism.weights_sum_to_one:
            for tau in head_diversity.TEMPERATURES:
                p = head_diversity.softmax_with_dummy(selected.weights, selected.visible, tau)
                distributions[str(tau)] = p
        for key, p in distributions.items():
            means.add(f"diversity {key}", head_diversity.jensen_shannon_divergence(p)[:, None])

    def result(self) -> dict[str, AttentionMetrics]:
        """Return the measures by attention module, e.g. "decoder.layers.0.encoder_attn"."""
        return {
            name: _to_metrics(attention, self.means[name]) for name, attention in named_attentions(self.model).items()
        }


def _to_metrics(attention: MechanismAttention, means: RunningMeans) -> AttentionMetrics:
    null_rate = means.heads("null_rate")
    known_rates = [rate for rate in null_rate or () if rate is not None]
    top_share = None
    if "top_share" in means.totals:
        shares = means.totals["top_share"] / means.counts["top_share"]  # [percents, H]
        top_share = {f"{percent:g}": _nan_to_none(heads) for percent, heads in zip(TOP_PERCENTS, shares, strict=True)}
    diversity = {str(key): mean_over_heads(means.heads(f"diversity {key}")) for key in DIVERSITY_KEYS}
    return AttentionMetrics(
        site=attention.site,
        mechanism=type(attention.mechanism).__name__,
        num_queries=means.num_rows,
        sparsity=means.heads("sparsity"),
        null_rate=null_rate,
        null_rate_variance=variance(known_rates) if len(known_rates) > 1 else None,
        entropy=means.heads("entropy"),
        entropy_non_null=means.heads("entropy_non_null"),
        sparsity_non_null=means.heads("sparsity_non_null"),
        top_share=top_share,
        sink_rate=means.heads("sink_rate"),
        sink_rate_uniform=mean_over_heads(means.heads("sink_rate_uniform")),
        distance=means.heads("distance"),
        distant_share=means.heads("distant_share"),
        stop_word_share=means.heads("stop_word_share"),
        stop_word_rate=mean_over_heads(means.heads("stop_word_rate")),
        head_diversity={key: value for key, value in diversity.items() if value is not None},
    )


class NullRateCollector(_RowCollector):
    """Collects null rates only, which needs no attention maps."""

    need = Need.ROW_STATS

    def _add(
        self, name: str, attention: MechanismAttention, result: AttentionOutput, mask: AttentionMask, tokens: SiteTokens
    ) -> None:
        if result.row_stats is not None:
            weight_sum = tokens.select_weight_sums(result.row_stats.weight_sum)
            self.means[name].add("null_rate", (weight_sum <= NULL_WEIGHT_SUM).float())

    def result(self) -> dict[str, PerHead]:
        """Return the null rates by attention module; modules whose mechanism has no row statistics are missing."""
        return {name: heads for name, means in self.means.items() if (heads := means.heads("null_rate")) is not None}
