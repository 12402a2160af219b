"""What the self-check computes for `inhibitor_triton`. Shapes: B batch, H heads, T queries, S keys, D head size.

Queries, keys and shifts are such multiples of 1/64, and values such odd multiples of 1/1024, that all distances and
differences are exact in float32: rounding cannot decide which term is positive.
"""

import functools
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from relumt.attention.kernels import inhibitor_naive, inhibitor_operator
from relumt.attention.kernels.self_check_result import Result, compare, make_mask, probe_dropout
from relumt.attention.mask import AttentionMask

B, H, T, S = 2, 2, 40, 45
"""S is no multiple of the keys that the half-precision kernel visits at once."""
GAMMA = 8.0
DROPOUT = 0.3
SEED = 1
TOLERANCE, HALF_TOLERANCE = 1e-4, 3e-3


@dataclass(frozen=True)
class InhibitorConfig:
    """What decides which code Triton compiles for a call, apart from alignment.

    Attributes:
        half: whether the forward pass may use half precision.
        head_dim: D.
        value_dim: size of values, twice D for the signed Inhibitor.
        has_key_mask, is_causal, has_dropout: which options the call uses.
    """

    half: bool
    head_dim: int
    value_dim: int
    has_key_mask: bool = False
    is_causal: bool = False
    has_dropout: bool = False

    @classmethod
    def from_call(cls, q: Tensor, v: Tensor, mask: AttentionMask, dropout_p: float, half: bool) -> "InhibitorConfig":
        """Describe a call of `inhibitor_operator.attend`, whose arguments these are."""
        return cls(half, q.shape[3], v.shape[3], mask.key_mask is not None, mask.is_causal, dropout_p > 0)

    def __str__(self) -> str:
        """Return a name for the log and for `relumt doctor`."""
        flags = ("has_key_mask", "is_causal", "has_dropout")
        words = [flag.partition("_")[2].replace("_", " ") for flag in flags if getattr(self, flag)]
        precision = "half precision" if self.half else "float32"
        sizes = f"head size {self.head_dim}, value size {self.value_dim}"
        return ", ".join([f"Inhibitor in {precision}", sizes, *words])


def results(config: InhibitorConfig, device: torch.device) -> Iterator[Result]:
    """Compute the output and all gradients with the kernels and in float64."""
    q, k, v, shift, grad = _random_inputs(config)
    mask, visible = make_mask(config.has_key_mask, config.is_causal, B, T, S)
    attend = functools.partial(_attend, config, mask.key_mask, device)
    dropped = None
    if config.has_dropout:
        # Queries that equal the keys have the distance 0, so every visible pair contributes.
        zeros = torch.zeros_like(q), torch.zeros_like(k)
        dropped = ~probe_dropout(attend, *zeros, config.value_dim, torch.zeros_like(shift))
        share = dropped[visible.expand(B, H, T, S)].double().mean()[None]
        yield Result("share of pairs that dropout drops", share, torch.full((1,), DROPOUT), 0.1)

    def exact(q: Tensor, k: Tensor, v: Tensor, shift: Tensor) -> tuple[Tensor]:
        return (inhibitor_naive.attend(q, k, v, GAMMA, shift, mask, dropped),)

    tolerances = dict.fromkeys(["output", *(f"gradient of {x}" for x in "qkvα")], TOLERANCE)
    tolerances["output"] = HALF_TOLERANCE if config.half else TOLERANCE
    yield from compare(attend, exact, [q, k, v, shift], [grad], tolerances)


def _random_inputs(config: InhibitorConfig) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return q, k, v, α [H, 1, 1] and the gradient of the output, in float64 but exact in float16."""
    generator = torch.Generator().manual_seed(SEED)
    D, V = config.head_dim, config.value_dim
    scale = GAMMA / D  # distances are then about as large as values
    q, k = (torch.randn(B, H, n, D, generator=generator).mul(64 * scale).round().div(64) for n in (T, S))
    v = torch.randn(B, H, S, V, generator=generator).clamp(-1.9, 1.9).mul(512).floor().add(0.5).div(512)
    grad = torch.randn(B, H, T, V, generator=generator)
    return q.double(), k.double(), v.double(), torch.tensor([0.25, 0.5]).double()[:, None, None], grad.double()


def _attend(config: InhibitorConfig, key_mask: Tensor | None, device: torch.device, *inputs: Tensor) -> tuple[Tensor]:
    """Call the kernels on a device, with the same dropout each time."""
    torch.manual_seed(SEED)  # of the dropout; `self_check` restores the generator
    q, k, v, shift = (x.to(device, torch.float32) for x in inputs)
    mask = AttentionMask(None if key_mask is None else key_mask.to(device), config.is_causal)
    dropout_p = DROPOUT if config.has_dropout else 0.0
    call = (q, k, v, GAMMA, shift, mask, None, dropout_p, config.half, "inhibitor_triton")
    return (inhibitor_operator.attend(*call),)
