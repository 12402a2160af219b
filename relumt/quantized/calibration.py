"""Calibration: the largest absolute values in a float model while it reads data, from which the scales follow."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from relumt.attention.inhibitor import InhibitorAttention


@dataclass(frozen=True)
class HeadRanges:
    """The largest absolute values in each head of an attention.

    Attributes:
        pairs: those of q and k, [H].
        values: those of v, [H].
    """

    pairs: Tensor
    values: Tensor

    def maximum(self, other: "HeadRanges") -> "HeadRanges":
        """Return the larger values of both."""
        return HeadRanges(self.pairs.maximum(other.pairs), self.values.maximum(other.values))


@dataclass(frozen=True)
class Ranges:
    """What was observed, by the full name of the module.

    Attributes:
        heads: ranges of each Inhibitor attention.
        inputs: largest absolute input of each linear layer, [].
    """

    heads: dict[str, HeadRanges] = field(default_factory=dict)
    inputs: dict[str, Tensor] = field(default_factory=dict)


@contextmanager
def observe_ranges(model: nn.Module) -> Iterator[Ranges]:
    """Record the ranges of all inputs that Inhibitors and linear layers of a float model get inside the block."""
    ranges = Ranges()
    with ExitStack() as hooks:
        for name, module in model.named_modules():
            if isinstance(module, InhibitorAttention):
                hooks.enter_context(module.register_forward_pre_hook(partial(_add_heads, ranges, name)))
            elif type(module) is nn.Linear:
                hooks.enter_context(module.register_forward_pre_hook(partial(_add_input, ranges, name)))
        yield ranges


@torch.no_grad()
def _add_heads(ranges: Ranges, name: str, _: nn.Module, arguments: tuple[Any, ...]) -> None:
    q, k, v, mask, *_rest = arguments
    k, v = mask.zero_padding(k), mask.zero_padding(v)
    found = HeadRanges(_largest_by_head(q).maximum(_largest_by_head(k)), _largest_by_head(v))
    ranges.heads[name] = found.maximum(ranges.heads[name]) if name in ranges.heads else found


def _largest_by_head(x: Tensor) -> Tensor:
    """[B, H, length, D] -> [H]"""
    return x.abs().amax((0, 2, 3)) if x.numel() else x.new_zeros(x.shape[1])


@torch.no_grad()
def _add_input(ranges: Ranges, name: str, _: nn.Module, arguments: tuple[Any, ...]) -> None:
    largest = arguments[0].abs().max()
    ranges.inputs[name] = largest.maximum(ranges.inputs[name]) if name in ranges.inputs else largest
