"""What the self-check computes for `inhibitor_triton`. Shapes: B batch, H heads, T queries, S keys, D head size.

Queries, keys and shifts are such multiples of 1/64, and values such odd multiples of 1/1024, that all distances and
differences are exact in float32: rounding cannot decide which term is positive.
"""

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from relumt.attention.kernels import inhibitor_naive, inhibitor_operator
from relumt.attention.kernels.self_check_result import Result, with_gradients
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
    key_mask = torch.arange(S) < torch.tensor([S, S - 7])[:, None] if config.has_key_mask else None
    mask = AttentionMask(key_mask, config.is_causal)
    attend = functools.partial(_attend, config, key_mask)
    dropped = None
    if config.has_dropout:
        dropped = _probe_dropout(config, attend, device)
        visible = torch.ones(B, H, T, S, dtype=torch.bool) if (dense := mask.to_dense(T, S)) is None else dense
        share = dropped[visible.expand(B, H, T, S)].double().mean()[None]
        yield Result("share of pairs that dropout drops", share, torch.full((1,), DROPOUT), 0.1)

    def exact(q: Tensor, k: Tensor, v: Tensor, shift: Tensor) -> tuple[Tensor]:
        return (inhibitor_naive.attend(q, k, v, GAMMA, shift, mask, dropped),)

    expected = with_gradients(exact, [q, k, v, shift], [grad])
    actual = with_gradients(attend, [x.to(device, torch.float32) for x in (q, k, v, shift)], [grad])
    names = ["output", *(f"gradient of {x}" for x in ("q", "k", "v", "α"))]
    tolerances = [HALF_TOLERANCE if config.half else TOLERANCE] + 4 * [TOLERANCE]
    for name, ours, theirs, tolerance in zip(names, actual, expected, tolerances, strict=True):
        yield Result(name, ours, theirs, tolerance)


def _random_inputs(config: InhibitorConfig) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return q, k, v, α [H, 1, 1] and the gradient of the output, in float64 but exact in float16."""
    generator = torch.Generator().manual_seed(SEED)
    D, V = config.head_dim, config.value_dim
    scale = GAMMA / D  # distances are then about as large as values
    q, k = (torch.randn(B, H, n, D, generator=generator).mul(64 * scale).round().div(64) for n in (T, S))
    v = torch.randn(B, H, S, V, generator=generator).clamp(-1.9, 1.9).mul(512).floor().add(0.5).div(512)
    grad = torch.randn(B, H, T, V, generator=generator)
    return q.double(), k.double(), v.double(), torch.tensor([0.25, 0.5]).double()[:, None, None], grad.double()


def _attend(
    config: InhibitorConfig, key_mask: Tensor | None, q: Tensor, k: Tensor, v: Tensor, shift: Tensor
) -> tuple[Tensor]:
    """Call the kernels, on the device of q and with the same dropout each time."""
    torch.manual_seed(SEED)  # of the dropout; `self_check` restores the generator
    mask = AttentionMask(None if key_mask is None else key_mask.to(q.device), config.is_causal)
    dropout_p = DROPOUT if config.has_dropout else 0.0
    call = (q, k, v, GAMMA, shift, mask, None, dropout_p, config.half, "inhibitor_triton")
    return (inhibitor_operator.attend(*call),)


def _probe_dropout(config: InhibitorConfig, attend: Callable[..., tuple[Tensor]], device: torch.device) -> Tensor:
    """Return which pairs dropout drops, [B, H, T, S] bool.

    Queries that equal the keys have the distance 0, and values that are slices of the identity make the output show
    the pairs that are left.
    """
    V = config.value_dim
    q, k = (torch.zeros(B, H, n, config.head_dim, device=device) for n in (T, S))
    identity, shift = F.pad(torch.eye(S, device=device), (0, -S % V)), torch.zeros(H, 1, 1, device=device)
    with torch.no_grad():
        slices = [attend(q, k, v.expand(B, H, S, V).contiguous(), shift)[0] for v in identity.split(V, dim=1)]
    return torch.cat(slices, dim=-1)[..., :S].eq(0).cpu()
