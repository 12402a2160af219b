"""FEEDFORWARDS: every feed-forward layer by its name. Shapes: x [..., d], d model size, h memory slots (FFN width).

Each is fc2(act(fc1(x))), with fc1 [d → h] and fc2 [h → d]: a memory of h keys (the rows of fc1) and values (the columns
of fc2), [RF] §3. Plain PyTorch, as `relumt.attention`. What torch has is torch's; a variant is one row.

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
from relumt.variant_spec import VariantSpec


@dataclass(frozen=True)
class FeedForward:
    """What a variant puts between fc1 and fc2, and how it changes the two.

    Attributes:
        activation: makes act, h → h (gated: 2h → h); None leaves fairseq's --activation-fn.
        gated: fc1 makes twice what fc2 takes, a gate's half and a value's half.
        equal_parameters: a gated layer of two thirds of the width, which has as many parameters as a plain one.
        normed: LayerNorm over fc2's output.
        bias: whether fc1 and fc2 have one.
    """

    activation: Callable[[], nn.Module] | None = None
    gated: bool = False
    equal_parameters: bool = False
    has_output_norm: bool = False
    bias: bool = True

    def num_slots(self, width: int) -> int:
        """What fc2 takes where the user asked for an FFN of `width`."""
        return round(width * 2 / 3) if self.equal_parameters else width

    def num_scores(self, width: int) -> int:
        """What fc1 makes where the user asked for an FFN of `width`."""
        return self.num_slots(width) * (2 if self.gated else 1)

    def configure_fc1(self, linear: nn.Module) -> nn.Module:
        """fc1 or fc2 as it was built, without its bias where there is to be none."""
        if not self.bias:
            linear.register_parameter("bias", None)
        return linear

    def configure_fc2(self, fc2: nn.Linear) -> nn.Module:
        """fc2 with what follows it."""
        fc2 = self.configure_fc1(fc2)
        return (
            nn.Sequential(OrderedDict(linear=fc2, norm=nn.LayerNorm(fc2.out_features))) if self.has_output_norm else fc2
        )


class Softmax(nn.Module):
    """Softmax(x/τ) over the slots: the memory network's addressing, [MN], [RF] Eq. 2. [..., h] → [..., h].

    Args:
        temperature: τ.
    """

    def __init__(self, temperature: float = 1.0) -> None:
        super().__init__()
        self.temperature = temperature

    def forward(self, x: Tensor) -> Tensor:
        """Weights of the slots, summing to 1."""
        return (at_least_float32(x) / self.temperature).softmax(-1).to(x.dtype)


class SquaredReLU(nn.Module):
    """max(x, 0)². [..., h] → [..., h]."""

    def forward(self, x: Tensor) -> Tensor:
        """The square of the positive part."""
        return cast_saturating(F.relu(at_least_float32(x)).square(), x.dtype)


class Gated(nn.Module):
    """act(a) ⊙ b, x = [a; b]: a gated linear unit. [..., 2h] → [..., h].

    Args:
        activation: act.
    """

    def __init__(self, activation: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        """The second half, gated by the first."""
        gate, value = at_least_float32(x).chunk(2, dim=-1)
        return cast_saturating(self.activation(gate) * value, x.dtype)


class APTx1(nn.Module):
    """APTx Stage 1 of [AF]: ((α + tanh(βx))·γx)², α = 1; β from 1 and γ from ½ are trained. [..., h] → [..., h].

    The note prints no formula. This is the APTx of the work that it cites, squared, which is what the note says Stage 1
    is.
    """

    def __init__(self) -> None:
        super().__init__()
        self.beta = nn.Parameter(torch.ones(1))
        self.gamma = nn.Parameter(torch.full((1,), 0.5))

    def forward(self, x: Tensor) -> Tensor:
        """The squared APTx of x."""
        exact = at_least_float32(x)
        beta, gamma = self.beta.to(exact.dtype), self.gamma.to(exact.dtype)
        return cast_saturating(((1 + (beta * exact).tanh()) * gamma * exact).square(), x.dtype)


class ReLUGT(nn.Module):
    """ReLU GT of [AF]: a·x² for x ≥ 0, max(b·x, −2.5) for x < 0; a from 1 and b from 0.05 are trained.

    The note names the parts (a trainable negative slope from 0.05, a static negative alpha of 2.5, a trainable positive
    alpha from 1.0, the positive part squared) and not how they are put together. Read here: the slope makes the
    negative side, the static alpha holds it from below, so that one large negative score cannot swamp the sum.
    """

    NEGATIVE_ALPHA = 2.5

    def __init__(self) -> None:
        super().__init__()
        self.positive_alpha = nn.Parameter(torch.ones(1))
        self.negative_slope = nn.Parameter(torch.full((1,), 0.05))

    def forward(self, x: Tensor) -> Tensor:
        """Elementwise, [..., h] → [..., h]."""
        exact = at_least_float32(x)
        above = self.positive_alpha.to(exact.dtype) * F.relu(exact).square()
        below = (self.negative_slope.to(exact.dtype) * exact.clamp(max=0)).clamp(min=-self.NEGATIVE_ALPHA)
        return cast_saturating(above + below, x.dtype)


@dataclass(frozen=True)
class MemoryOptions:
    """Options of the softmax memories: command-line flags --memory-temperature, --memory-bias."""

    temperature: float = field(default=1.0, metadata={"help": "τ, which divides the scores before softmax"})
    bias: bool = field(default=True, metadata={"help": "keep the biases of both layers, which [RF] Eq. 2 lacks"})

    def __post_init__(self) -> None:
        if not self.temperature > 0:
            raise ValueError(f"--memory-temperature must be positive, not {self.temperature}")


@dataclass(frozen=True)
class GatedOptions:
    """Options of the gated units: command-line flag --gated-equal-parameters."""

    equal_parameters: bool = field(
        default=False, metadata={"help": "two thirds of the width, for as many parameters as a plain feed-forward"}
    )


def plain(activation: Callable[[], nn.Module] | None) -> Callable[[], FeedForward]:
    """A variant that only has another activation."""
    return partial(FeedForward, activation)


def memory(has_output_norm: bool) -> Callable[[MemoryOptions], FeedForward]:
    """Softmax(XKᵀ)V, with LayerNorm on the output if `normed`."""
    return lambda options: FeedForward(
        partial(Softmax, options.temperature), has_output_norm=has_output_norm, bias=options.bias
    )


def gated(activation: Callable[[Tensor], Tensor]) -> Callable[[GatedOptions], FeedForward]:
    """A gated linear unit with `activation` on the gate."""
    return lambda options: FeedForward(
        partial(Gated, activation), gated=True, equal_parameters=options.equal_parameters
    )


@dataclass(frozen=True)
class FeedForwardSpec(VariantSpec):
    """One variant.

    Attributes:
        factory: takes an instance of the options class, if there is one.
        options: dataclass of the variant's own options, or None.
        prefix: of the options' flags.
    """

    factory: Callable[..., FeedForward]
    options: type | None = None
    prefix: str = ""

    def __call__(self, **options: object) -> FeedForward:
        """Build the variant; raises TypeError or ValueError for an option that it does not have or allow."""
        return self.factory(**options) if self.options is None else self.factory(self.checked(options))


FEEDFORWARDS: dict[str, FeedForwardSpec] = {
    "stock": FeedForwardSpec(plain(None)),
    "relu": FeedForwardSpec(plain(nn.ReLU)),
    "softmax": FeedForwardSpec(memory(has_output_norm=False), MemoryOptions, prefix="memory"),
    "softmax_ln": FeedForwardSpec(memory(has_output_norm=True), MemoryOptions, prefix="memory"),
    "gelu": FeedForwardSpec(plain(nn.GELU)),
    "swish": FeedForwardSpec(plain(nn.SiLU)),
    "mish": FeedForwardSpec(plain(nn.Mish)),
    "relu2": FeedForwardSpec(plain(SquaredReLU)),
    "swiglu": FeedForwardSpec(gated(F.silu), GatedOptions, prefix="gated"),
    "geglu": FeedForwardSpec(gated(F.gelu), GatedOptions, prefix="gated"),
    "reglu": FeedForwardSpec(gated(F.relu), GatedOptions, prefix="gated"),
    "aptx1": FeedForwardSpec(plain(APTx1)),
    "relu_gt": FeedForwardSpec(plain(ReLUGT)),
}
