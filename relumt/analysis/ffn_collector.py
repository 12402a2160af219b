"""Measures of feed-forward layers on a test set ([RF] section 3). Shapes: N positions, h slots."""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from relumt.analysis.record import FeedForwardMetrics
from relumt.attention.metrics.ffn_metrics import anisotropy, feature_variance, top_share
from relumt.plugin.model.hooks import FeedForwardActivations, feedforward_hook
from relumt.plugin.model.layers import FeedForwardMixin

TOP_PERCENTS = (0.2, 0.5, 1, 2, 5, 10, 20, 50)
"""Percentages of the slots for `top_share`."""


@dataclass
class _Sums:
    """Sums over the positions that one layer has processed."""

    output_variance: float = 0.0
    residual_variance: float = 0.0
    num_positions: int = 0
    num_null: int = 0
    has_negative_scores: bool = False
    top_share: Tensor = field(default_factory=lambda: torch.zeros(len(TOP_PERCENTS), dtype=torch.float64))

    def add(self, scores: Tensor, output: Tensor, residual: Tensor) -> None:
        """Add positions: scores [N, h], output and residual [N, d]."""
        self.num_positions += len(scores)
        self.output_variance += feature_variance(output.float()).sum().item()
        self.residual_variance += feature_variance(residual.float()).sum().item()
        self.has_negative_scores = self.has_negative_scores or bool((scores < 0).any())
        if not self.has_negative_scores:
            shares = top_share(scores.float(), TOP_PERCENTS)
            is_null = shares[0].isnan()
            self.num_null += int(is_null.sum())
            self.top_share += shares[:, ~is_null].sum(1, dtype=torch.float64).cpu()

    def to_metrics(self, values: Tensor) -> FeedForwardMetrics:
        """Return the measures of the layer with the value slots `values`, [h, d]."""
        num_scored = self.num_positions - self.num_null
        shares = None
        if num_scored and not self.has_negative_scores:
            shares = dict(zip(map(str, TOP_PERCENTS), (self.top_share / num_scored).tolist(), strict=True))
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

        def add(name: str, activations: FeedForwardActivations) -> None:
            real = inputs[name.partition(".")[0]].ne(self.pad).T  # [B, T] -> [T, B], fairseq's order inside the layers
            self.sums[name].add(activations.scores[real], activations.output[real], activations.residual[real])

        with feedforward_hook(self.model, add):
            yield

    def result(self) -> dict[str, FeedForwardMetrics]:
        """Return the measures by layer, e.g. "encoder.layers.0"."""
        layers = _feedforward_layers(self.model)
        return {name: sums.to_metrics(value_slots(layers[name])) for name, sums in self.sums.items()}


def _feedforward_layers(model: nn.Module) -> dict[str, FeedForwardMixin]:
    return {name: layer for name, layer in model.named_modules() if isinstance(layer, FeedForwardMixin)}


def value_slots(layer: FeedForwardMixin) -> Tensor:
    """Return the value slots of a layer, [h, d]: the columns of fc2's weight."""
    # With an output norm, fc2 is a sequence of a linear layer and the norm.
    name = "linear.weight" if layer.feedforward.has_output_norm else "weight"
    return layer.fc2.get_parameter(name).detach().float().T


def learned_activations(model: nn.Module) -> dict[str, dict[str, float]]:
    """Return the trained parameters of activation functions by layer and name; empty if there are none."""
    learned = {
        name: {key: value.item() for key, value in layer.activation_fn.named_parameters()}
        for name, layer in _feedforward_layers(model).items()
        if isinstance(layer.activation_fn, nn.Module)
    }
    return {name: parameters for name, parameters in learned.items() if parameters}
