"""FEEDFORWARDS, the registry of feed-forward layers. Shapes: x [..., d], d model size, h memory slots (FFN width).

Each is fc2(act(fc1(x))) with fc1 [d → h] and fc2 [h → d]: a memory with h keys (the rows of fc1) and values (the
columns of fc2), [RF] §3. Plain PyTorch, as `relumt.attention`. Activations that torch has are torch's.

[RF] Shen et al. 2023 · [MN] Sukhbaatar et al. 2015 · [AF] a note on trainable activations · relu2: So et al. 2021
(Primer) · swiglu, geglu, reglu: Shazeer 2020.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from relumt.attention.precision import at_least_float32, cast_saturating
from relumt.attention.variant_spec import POSITIVE, Registry, VariantSpec


@dataclass(frozen=True)
class FeedForward:
    """The activation between fc1 and fc2, and how a variant changes these two.

    Attributes:
        activation: builds act, h → h (gated: 2h → h); None keeps fairseq's --activation-fn.
        is_gated: fc1 returns twice what fc2 takes, a gate and a value for each slot.
        equal_parameters: two thirds of the slots, so that a gated layer has as many parameters as a plain one.
        has_output_norm: LayerNorm follows fc2.
        has_bias: fc1 and fc2 have biases.
    """

    activation: Callable[[], nn.Module] | None = None
    is_gated: bool = False
    equal_parameters: bool = False
    has_output_norm: bool = False
    has_bias: bool = True

    def num_slots(self, width: int) -> int:
        """Return the input size of fc2 if the user asked for an FFN of `width`."""
        return round(width * 2 / 3) if self.equal_parameters else width

    def num_scores(self, width: int) -> int:
        """Return the output size of fc1 if the user asked for an FFN of `width`."""
        return self.num_slots(width) * (2 if self.is_gated else 1)

    def configure_fc1(self, fc1: nn.Linear) -> nn.Linear:
        """Remove the bias if the variant has none."""
        if not self.has_bias:
            fc1.register_parameter("bias", None)
        return fc1

    def configure_fc2(self, fc2: nn.Linear) -> nn.Module:
        """Remove the bias and append the norm if the variant asks for it."""
        fc2 = self.configure_fc1(fc2)
        if not self.has_output_norm:
            return fc2
        return nn.Sequential(OrderedDict(linear=fc2, norm=nn.LayerNorm(fc2.out_features)))


class Softmax(nn.Module):
    """Softmax(x/τ) over the slots: how a memory network addresses its memory, [MN], [RF] Eq. 2. [..., h] → [..., h].

    Args:
        temperature: τ.
    """

    def __init__(self, temperature: float = 1.0) -> None:
        super().__init__()
        self.temperature = temperature

    def extra_repr(self) -> str:
        """Return the temperature."""
        return f"temperature={self.temperature}"

    def forward(self, x: Tensor) -> Tensor:
        """Return the weights of the slots, which sum to 1."""
        return (at_least_float32(x) / self.temperature).softmax(-1).to(x.dtype)


class SquaredReLU(nn.Module):
    """max(x, 0)². [..., h] → [..., h]."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the square of the positive part."""
        return cast_saturating(F.relu(at_least_float32(x)).square(), x.dtype)


class GatedLinearUnit(nn.Module):
    """act(a) ⊙ b with x = [a; b]. [..., 2h] → [..., h].

    Args:
        activation: act.
    """

    def __init__(self, activation: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.activation = activation

    def extra_repr(self) -> str:
        """Return the name of the activation."""
        return self.activation.__name__

    def forward(self, x: Tensor) -> Tensor:
        """Return the second half, gated by the first."""
        gate, value = at_least_float32(x).chunk(2, dim=-1)
        return cast_saturating(self.activation(gate) * value, x.dtype)


class APTx1(nn.Module):
    """APTx Stage 1 of [AF]: ((α + tanh(βx))·γx)², α = 1. [..., h] → [..., h].

    β and γ are trained and start at 1 and ½, as in the author's class `APTxS1`. It is the square of APTx (Kumar 2022).
    """

    def __init__(self) -> None:
        super().__init__()
        self.beta = nn.Parameter(torch.ones(1))
        self.gamma = nn.Parameter(torch.full((1,), 0.5))

    def forward(self, x: Tensor) -> Tensor:
        """Return the squared APTx of x."""
        exact = at_least_float32(x)
        beta, gamma = self.beta.to(exact.dtype), self.gamma.to(exact.dtype)
        return cast_saturating(((1 + (beta * exact).tanh()) * gamma * exact).square(), x.dtype)


class ReLUGT(nn.Module):
    """ReLU GT of [AF]: a·x² for x ≥ 0, 2.5·b·x for x < 0. [..., h] → [..., h].

    a and b are trained and start at 1 and 0.05, so the negative side starts with a slope of 0.125. The function and
    the constants are those of the author's class `ReLUGT`.
    """

    NEGATIVE_ALPHA = 2.5

    def __init__(self) -> None:
        super().__init__()
        self.positive_alpha = nn.Parameter(torch.ones(1))
        self.negative_slope = nn.Parameter(torch.full((1,), 0.05))

    def forward(self, x: Tensor) -> Tensor:
        """Return ReLU GT of x, elementwise."""
        exact = at_least_float32(x)
        # A sum, because `where` would multiply the overflowing square of a large negative x by a gradient of 0: NaN.
        squared_part = self.positive_alpha.to(exact.dtype) * F.relu(exact).square()
        linear_part = self.NEGATIVE_ALPHA * self.negative_slope.to(exact.dtype) * F.relu(-exact)
        return cast_saturating(squared_part - linear_part, x.dtype)


@dataclass(frozen=True)
class MemoryOptions:
    """Options of the softmax memories: flags --memory-temperature and --memory-bias."""

    temperature: float = field(
        default=1.0, metadata={"help": "τ, which divides the scores before softmax", "range": POSITIVE}
    )
    bias: bool = field(default=True, metadata={"help": "keep the biases of both layers; [RF] Eq. 2 has none"})


@dataclass(frozen=True)
class GatedOptions:
    """Options of the gated linear units: flag --gated-equal-parameters."""

    equal_parameters: bool = field(
        default=False, metadata={"help": "two thirds of the width: as many parameters as a plain feed-forward layer"}
    )


def softmax_memory(options: MemoryOptions, has_output_norm: bool = False) -> FeedForward:
    """Return Softmax(XKᵀ/τ)V, with LayerNorm on the output if `has_output_norm`."""
    activation = partial(Softmax, options.temperature)
    return FeedForward(activation, has_output_norm=has_output_norm, has_bias=options.bias)


def gated(activation: Callable[[Tensor], Tensor]) -> Callable[[GatedOptions], FeedForward]:
    """Return the factory of a gated linear unit with `activation` on the gate."""
    return lambda options: FeedForward(
        partial(GatedLinearUnit, activation), is_gated=True, equal_parameters=options.equal_parameters
    )


FEEDFORWARDS: Registry[VariantSpec[FeedForward]] = Registry(
    "feed-forward layer",
    {
        "stock": VariantSpec(FeedForward),
        "relu": VariantSpec(partial(FeedForward, nn.ReLU)),
        "softmax": VariantSpec(softmax_memory, MemoryOptions, "memory"),
        "softmax_ln": VariantSpec(partial(softmax_memory, has_output_norm=True), MemoryOptions, "memory"),
        "gelu": VariantSpec(partial(FeedForward, nn.GELU)),
        "swish": VariantSpec(partial(FeedForward, nn.SiLU)),
        "mish": VariantSpec(partial(FeedForward, nn.Mish)),
        "relu2": VariantSpec(partial(FeedForward, SquaredReLU)),
        "swiglu": VariantSpec(gated(F.silu), GatedOptions, "gated"),
        "geglu": VariantSpec(gated(F.gelu), GatedOptions, "gated"),
        "reglu": VariantSpec(gated(F.relu), GatedOptions, "gated"),
        "aptx1": VariantSpec(partial(FeedForward, APTx1)),
        "relu_gt": VariantSpec(partial(FeedForward, ReLUGT)),
    },
)
