"""What feed-forward layers do on a test set, layer by layer: the numbers of [RF] §3. Shapes: N positions, h slots."""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from relumt.metrics.ffn_metrics import anisotropy, feature_variance, top_share
from relumt.modules.hooks import FeedForwardActivations, feedforward_hook
from relumt.modules.layers import FeedForwardMixin

PERCENTS = (0.2, 0.5, 1, 2, 5, 10, 20, 50)
"""Of the slots, at which [RF] Fig. 2's share of the score is taken."""


@dataclass
class _Sums:
    """Of one layer, over all positions so far."""

    output_variance: float = 0.0
    residual_variance: float = 0.0
    positions: int = 0
    null: int = 0
    negative: bool = False
    shares: Tensor = field(default_factory=lambda: torch.zeros(len(PERCENTS), dtype=torch.float64))


class FeedForwardCollector:
    """Adds up, batch by batch, what each feed-forward layer of `model` did at the positions that are no padding.

    Args:
        model: of relumt's architectures; a stock one has no layer to tap.
        pad: the index of padding in its dictionaries.
    """

    def __init__(self, model: nn.Module, pad: int) -> None:
        self.model = model
        self.pad = pad
        self.sums: dict[str, _Sums] = defaultdict(_Sums)

    @contextmanager
    def listening(self, sample: dict[str, Any]) -> Iterator[None]:
        """Add what the model computes inside the block, on this sample."""
        net_input = sample["net_input"]
        real = {
            "encoder": net_input["src_tokens"].ne(self.pad).T,
            "decoder": net_input["prev_output_tokens"].ne(self.pad).T,
        }

        def add(name: str, remembered: FeedForwardActivations) -> None:
            at = real[name.partition(".")[0]]
            self._add(self.sums[name], remembered.scores[at], remembered.output[at], remembered.residual[at])

        with feedforward_hook(self.model, add):
            yield

    def _add(self, sums: _Sums, scores: Tensor, output: Tensor, residual: Tensor) -> None:
        sums.positions += len(scores)
        sums.output_variance += feature_variance(output.float()).sum().item()
        sums.residual_variance += feature_variance(residual.float()).sum().item()
        sums.negative = sums.negative or bool((scores < 0).any())
        if not sums.negative:
            shares = top_share(scores.float(), PERCENTS)
            null = shares[0].isnan()
            sums.null += int(null.sum())
            sums.shares += shares[:, ~null].sum(1, dtype=torch.float64).cpu()

    def result(self) -> dict[str, dict[str, Any]]:
        """By layer, e.g. "encoder.layers.0": see `describe`."""
        layers = dict(self.model.named_modules())
        return {name: self.describe(layers[name], sums) for name, sums in self.sums.items()}

    def describe(self, layer: FeedForwardMixin, sums: _Sums) -> dict[str, Any]:
        """The measures of a layer.

        variance_ratio: of output and residual, [RF] Table 1. null_rate: share of positions at which every score is 0.
        top_share: of the other positions, by percentage, [RF] Fig. 2. Both are None where scores can be negative.
        slots, anisotropy: of the values, [RF] Eq. 4; None for a single slot.
        """
        values = memory_values(layer)
        scored = sums.positions - sums.null
        shares = None if sums.negative or not scored else (sums.shares / scored).tolist()
        return {
            "slots": len(values),
            "positions": sums.positions,
            "variance_ratio": sums.output_variance / sums.residual_variance,
            "null_rate": None if sums.negative else sums.null / sums.positions,
            "top_share": None if shares is None else dict(zip(map(str, PERCENTS), shares, strict=True)),
            "anisotropy": anisotropy(values).item() if len(values) > 1 else None,
        }


def memory_values(layer: FeedForwardMixin) -> Tensor:
    """The value slots of a layer, [h, d]: the columns of fc2, in single precision."""
    fc2 = layer.fc2.linear if layer.feedforward.has_output_norm else layer.fc2
    return fc2.weight.detach().float().T


def learnt_activations(model: nn.Module) -> dict[str, dict[str, float]]:
    """The trained parameters of activations, by layer and name; empty where there are none."""
    learnt = {}
    for name, layer in model.named_modules():
        if isinstance(layer, FeedForwardMixin) and isinstance(layer.activation_fn, nn.Module):
            parameters = {key: value.item() for key, value in layer.activation_fn.named_parameters()}
            if parameters:
                learnt[name] = parameters
    return learnt
