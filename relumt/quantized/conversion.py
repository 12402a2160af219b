"""Replaces modules of a float model by their integer versions."""

from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor, nn

from relumt.attention.inhibitor import InhibitorAttention, SignedInhibitorAttention
from relumt.errors import UserError
from relumt.quantized.attention import IntegerInhibitor, SignedIntegerInhibitor
from relumt.quantized.calibration import HeadRanges, Ranges
from relumt.quantized.linear import IntegerLinear
from relumt.quantized.quantization import Quantization

Observed = TypeVar("Observed", Tensor, HeadRanges)


@dataclass(frozen=True)
class Converted:
    """The float modules that were replaced and their replacements, by full name.

    Attributes:
        attentions: layers of [IN] attention.
        linears: linear layers.
    """

    attentions: dict[str, tuple[InhibitorAttention, IntegerInhibitor]]
    linears: dict[str, tuple[nn.Linear, IntegerLinear]]

    def accumulator_bits(self) -> dict[str, int]:
        """Return the bits that the signed accumulators of the largest modules need at worst, without the sum over keys.

        The sum over n keys of b-bit integers needs another ⌈log₂ n⌉ bits.
        """
        distances = [attention.distance_width() for _, attention in self.attentions.values()]
        products = [linear.accumulator_width() for _, linear in self.linears.values()]
        return {"distances": max(distances)} | ({"products": max(products)} if products else {})


def require_inhibitor(model: nn.Module) -> None:
    """Raise UserError unless a model has Inhibitor attention."""
    if not any(isinstance(module, InhibitorAttention) for module in model.modules()):
        raise UserError(
            "expected a model with Inhibitor attention (inhibitor, inhibitor_signed), found none; choose another run"
        )


def is_quantized(model: nn.Module) -> bool:
    """Return whether a model has attention in integers."""
    return any(isinstance(module, IntegerInhibitor) for module in model.modules())


def convert_(model: nn.Module, quantization: Quantization) -> Converted:
    """Replace modules by integer versions whose weights and scales are still to be loaded.

    Raises:
        UserError: the model has no Inhibitor attention, or a layer is too large for exact sums.
    """
    require_inhibitor(model)
    converted = Converted({}, {})
    try:
        for prefix, parent in list(model.named_modules()):
            for name, child in list(parent.named_children()):
                path = f"{prefix}.{name}".lstrip(".")
                if isinstance(child, InhibitorAttention):
                    is_signed = isinstance(child, SignedInhibitorAttention)
                    kind = SignedIntegerInhibitor if is_signed else IntegerInhibitor
                    attention = kind(child.num_heads, child.head_dim, quantization.bits, child.options)
                    converted.attentions[path] = child, attention.train(child.training)
                    setattr(parent, name, attention)
                elif type(child) is nn.Linear and quantization.part == "all":
                    has_bias = child.bias is not None
                    linear = IntegerLinear(child.in_features, child.out_features, has_bias, quantization.bits)
                    converted.linears[path] = child, linear.train(child.training)
                    setattr(parent, name, linear)
    except ValueError as error:
        raise UserError(f"{path}: {error}") from None
    return converted


def quantize_(model: nn.Module, quantization: Quantization, ranges: Ranges) -> Converted:
    """Quantize a float model in place, with scales from the ranges that its float modules were observed with.

    Raises:
        UserError: as `convert_`; or a module was not used, or a value was not finite, when the ranges were observed.
    """
    converted = convert_(model, quantization)
    for name, (attention, replacement) in converted.attentions.items():
        replacement.quantize_from(attention, _observed(ranges.heads, name))
    for name, (linear, integer_linear) in converted.linears.items():
        integer_linear.quantize_from(linear, _observed(ranges.inputs, name))
    return converted


def _observed(ranges: dict[str, Observed], name: str) -> Observed:
    """Return the ranges of a module; raise UserError if there are none, or if they are not finite."""
    if name not in ranges:
        raise UserError(f"{name} was not used in calibration, so its scale is unknown; calibrate with more sentences")
    found = ranges[name]
    values = (found.pairs, found.values) if isinstance(found, HeadRanges) else (found,)
    if not all(torch.isfinite(x).all() for x in values):
        raise UserError(f"{name} has inputs that are not finite, since training diverged; choose another run")
    return found
