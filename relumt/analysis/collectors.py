"""Measures of attention and feed-forward layers on a test set.

Shapes: B H T S; R rows of real queries, K keys; N positions, h slots. Measures are summed while the model reads the
references, so memory holds one batch's attention maps at a time.
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

from relumt.analysis.record import AttentionMetrics, FeedForwardMetrics, PerHead, mean_over_heads
from relumt.analysis.units import AttentionRows, BatchReader, select_rows
from relumt.attention import AttentionMask, AttentionOutput, Need
from relumt.attention.metrics import attention_metrics as metrics
from relumt.attention.metrics import head_diversity
from relumt.attention.metrics.ffn_metrics import anisotropy, feature_variance, top_share
from relumt.plugin.model.attention import MechanismAttention
from relumt.plugin.model.hooks import attention_hook, feedforward_hook, named_attentions, named_feedforwards
from relumt.plugin.model.layers import FeedForwardMixin

TOP_PERCENTS = (*(tenths / 10 for tenths in range(1, 16)), 2, 5, 10, 20, 50)
"""Percentages of the visible keys for `top_share`: 0.1 to 1.5 as in [RF] Fig. 4, and a few more."""

DISTANT = 10
"""A key more than this many tokens away from a self-attention query counts as distant."""

LAYER_MEASURES = ("sink_rate_uniform", "stop_word_rate")
"""Fields of `AttentionMetrics` with a mean over heads: what uniform weights would give."""


DIVERSITY = "diversity "
"""Begins the name of a measure that is an entry of `AttentionMetrics.head_diversity`."""


class RunningMeans:
    """Means over rows of several named measures of one attention module."""

    def __init__(self) -> None:
        self.num_rows = 0
        self.totals: dict[str, Tensor] = {}
        self.counts: dict[str, Tensor] = {}

    def add(self, name: str, values: Tensor) -> None:
        """Add the values [..., R, H] of a measure; rows with NaN are left out of its mean."""
        is_defined = ~values.isnan()
        self.totals[name] = self.totals.get(name, 0) + values.double().where(is_defined, 0.0).sum(-2).cpu()
        self.counts[name] = self.counts.get(name, 0) + is_defined.sum(-2).cpu()

    def heads(self, name: str) -> Tensor:
        """Return the mean of each head, NaN for a head without values."""
        return self.totals[name] / self.counts[name]


def _nan_to_none(values: Tensor) -> PerHead:
    return [None if math.isnan(value) else value for value in values.tolist()]


class AttentionCollector:
    """Collects every measure of attention, or the first ones only: sparsity and null rates.

    Args:
        model: a model of relumt's architectures.
        reader: says what the queries and keys of a batch are.
        null_rates_only: whether to leave out all other measures.
    """

    def __init__(self, model: nn.Module, reader: BatchReader, null_rates_only: bool = False) -> None:
        self.model = model
        self.reader = reader
        self.null_rates_only = null_rates_only
        self.means: dict[str, RunningMeans] = defaultdict(RunningMeans)

    @contextmanager
    def observe(self, sample: dict[str, Any]) -> Iterator[None]:
        """Add what the model computes inside the block, which must run on this batch."""
        tokens = self.reader.read(sample)

        def add(name: str, attention: MechanismAttention, result: AttentionOutput, mask: AttentionMask) -> None:
            if result.weights is not None:
                rows = select_rows(result.weights, mask, *tokens[attention.site], self.reader.unit)
                _add_rows(self.means[name], attention, rows, self.null_rates_only)

        with attention_hook(self.model, add, Need.WEIGHTS):
            yield

    def result(self) -> dict[str, AttentionMetrics]:
        """Return the measures by attention module, e.g. "decoder.layers.0.encoder_attn"."""
        return {
            name: _to_metrics(attention, self.means[name]) for name, attention in named_attentions(self.model).items()
        }


def _add_rows(
    means: RunningMeans, attention: MechanismAttention, selected: AttentionRows, null_rates_only: bool
) -> None:
    """Add the measures of the rows of one attention result."""
    rows, visible, num_visible = selected.weights, selected.visible, selected.visible.sum(-1)
    means.num_rows += len(rows)
    sparsity = metrics.sparsity(rows, num_visible)
    means.add("sparsity", sparsity)
    if attention.mechanism.has_negative_weights:
        return  # the other measures need p = α/Σα to be a distribution
    is_null = metrics.is_null_row(rows)
    means.add("null_rate", is_null.float())
    if null_rates_only:
        return
    entropy = metrics.entropy(rows)
    means.add("entropy", entropy)
    means.add("entropy_non_null", entropy.masked_fill(is_null, math.nan))
    means.add("sparsity_non_null", sparsity.masked_fill(is_null, math.nan))
    means.add("top_share", metrics.top_share(rows, num_visible, TOP_PERCENTS))
    means.add("sink_rate", metrics.sink_rate(rows, visible))
    # What uniform weights would give is compared with a share of the weight, so both need the same rows.
    means.add("sink_rate_uniform", _repeat_over_heads(metrics.uniform_sink_rate(num_visible), is_null))
    if selected.is_stop_word is not None:
        means.add("stop_word_share", metrics.mean_over_keys(rows, selected.is_stop_word))
        stop_word_rate = (selected.is_stop_word & visible).sum(-1) / num_visible
        means.add("stop_word_rate", _repeat_over_heads(stop_word_rate, is_null))
    if attention.site != "cross":
        means.add("distance", metrics.mean_distance(rows, selected.positions))
        means.add("distant_share", metrics.distant_share(rows, selected.positions, DISTANT))
    distributions = {"normalized": head_diversity.normalize_with_dummy(rows)}
    if not attention.mechanism.weights_sum_to_one:
        for tau in head_diversity.TEMPERATURES:
            distributions[str(tau)] = head_diversity.softmax_with_dummy(rows, visible, tau)
    for key, p in distributions.items():
        means.add(DIVERSITY + key, head_diversity.jensen_shannon_divergence(p)[:, None])


def _repeat_over_heads(values: Tensor, is_null: Tensor) -> Tensor:
    """Return values [R] of rows for each head, NaN where its row is null: [R, H]."""
    return values[:, None].expand(is_null.shape).masked_fill(is_null, math.nan)


def _to_metrics(attention: MechanismAttention, means: RunningMeans) -> AttentionMetrics:
    measured: dict[str, Any] = {}
    diversity: dict[str, float] = {}
    for name in means.totals:
        if name == "top_share":  # [percents, H]
            shares = zip(TOP_PERCENTS, means.heads(name), strict=True)
            measured[name] = {f"{percent:g}": _nan_to_none(row) for percent, row in shares}
            continue
        heads = _nan_to_none(means.heads(name))
        if not name.startswith(DIVERSITY):
            measured[name] = mean_over_heads(heads) if name in LAYER_MEASURES else heads
        elif (average := mean_over_heads(heads)) is not None:
            diversity[name.removeprefix(DIVERSITY)] = average
    known_rates = [rate for rate in measured.get("null_rate", ()) if rate is not None]
    return AttentionMetrics(
        site=attention.site,
        mechanism=type(attention.mechanism).__name__,
        num_queries=means.num_rows,
        null_rate_variance=variance(known_rates) if len(known_rates) > 1 else None,
        head_diversity=diversity,
        **measured,
    )


TOP_SLOT_PERCENTS = (0.2, 0.5, 1, 2, 5, 10, 20, 50)
"""Percentages of the slots for `top_share`."""


@dataclass
class _Sums:
    """Sums over the positions that one layer has processed."""

    output_variance: float = 0.0
    residual_variance: float = 0.0
    num_positions: int = 0
    num_null: int = 0
    has_negative_scores: bool = False
    top_share: Tensor = field(default_factory=lambda: torch.zeros(len(TOP_SLOT_PERCENTS), dtype=torch.float64))

    def add(self, scores: Tensor, output: Tensor, residual: Tensor) -> None:
        """Add positions: scores [N, h], output and residual [N, d]."""
        self.num_positions += len(scores)
        self.output_variance += feature_variance(output.float()).sum().item()
        self.residual_variance += feature_variance(residual.float()).sum().item()
        self.has_negative_scores = self.has_negative_scores or bool((scores < 0).any())
        if not self.has_negative_scores:
            shares = top_share(scores.float(), TOP_SLOT_PERCENTS)
            is_null = shares[0].isnan()
            self.num_null += int(is_null.sum())
            self.top_share += shares[:, ~is_null].sum(1, dtype=torch.float64).cpu()

    def to_metrics(self, values: Tensor) -> FeedForwardMetrics:
        """Return the measures of the layer with the value slots `values`, [h, d]."""
        num_scored = self.num_positions - self.num_null
        shares = None
        if num_scored and not self.has_negative_scores:
            shares = dict(zip(map(str, TOP_SLOT_PERCENTS), (self.top_share / num_scored).tolist(), strict=True))
        return FeedForwardMetrics(
            num_slots=len(values),
            num_positions=self.num_positions,
            variance_ratio=self.output_variance / self.residual_variance,
            null_rate=None if self.has_negative_scores else self.num_null / self.num_positions,
            top_share=shares,
            anisotropy=anisotropy(values).item() if len(values) > 1 else None,
        )


class FeedForwardCollector:
    """Collects the measures of every feed-forward layer, over positions that are not padding.

    Args:
        model: a model of relumt's architectures.
        pad: padding index of both dictionaries.
    """

    def __init__(self, model: nn.Module, pad: int) -> None:
        self.model = model
        self.pad = pad
        self.sums: dict[str, _Sums] = defaultdict(_Sums)

    @contextmanager
    def observe(self, sample: dict[str, Any]) -> Iterator[None]:
        """Add what the model computes inside the block, which must run on this batch."""
        inputs = {"encoder": sample["net_input"]["src_tokens"], "decoder": sample["net_input"]["prev_output_tokens"]}

        def add(name: str, scores: Tensor, output: Tensor, residual: Tensor) -> None:
            real = inputs[name.partition(".")[0]].ne(self.pad).T  # [B, T] -> [T, B], fairseq's order inside the layers
            self.sums[name].add(scores[real], output[real], residual[real])

        with feedforward_hook(self.model, add):
            yield

    def result(self) -> dict[str, FeedForwardMetrics]:
        """Return the measures by layer, e.g. "encoder.layers.0"."""
        layers = named_feedforwards(self.model)
        return {name: sums.to_metrics(value_slots(layers[name])) for name, sums in self.sums.items()}


def value_slots(layer: FeedForwardMixin) -> Tensor:
    """Return the value slots of a layer, [h, d]: the columns of fc2's weight."""
    # With an output norm, fc2 is a sequence of a linear layer and the norm.
    name = "linear.weight" if layer.feedforward.has_output_norm else "weight"
    return layer.fc2.get_parameter(name).detach().float().T


def learned_activations(model: nn.Module) -> dict[str, dict[str, float]]:
    """Return the trained parameters of activation functions by layer and name; empty if there are none."""
    learned = {
        name: {key: value.item() for key, value in layer.activation_fn.named_parameters()}
        for name, layer in named_feedforwards(model).items()
        if isinstance(layer.activation_fn, nn.Module)
    }
    return {name: parameters for name, parameters in learned.items() if parameters}
