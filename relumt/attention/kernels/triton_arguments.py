"""Arguments of the Triton kernels. Shapes: B batch, H heads, T queries, S keys, D head size.

What varies between calls is packed in named tuples, which kernels read by field, but for lengths: Triton would compile
another kernel for numbers in a tuple that are divisible by 16, or 1. Constants are a data class, a kernel's argument
CONFIG; it is compiled for each value, which Triton knows by its text.
"""

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from relumt.attention.kernels.pointwise_params import Activation


class Strided(NamedTuple):
    """A tensor [B, H, length, D], with its strides in elements."""

    data: Tensor
    b: int
    h: int
    row: int
    d: int


class Padding(NamedTuple):
    """What hides keys; None if all are real."""

    mask: Tensor | None
    """[B, S] uint8, 0 for padding."""
    bounds: Tensor | None
    """[B, 2] int32, of `key_bounds.key_bounds`."""


class Dropout(NamedTuple):
    """Which weights are dropped."""

    p: float
    """Probability; that of pointwise kernels is one of `round_dropout`."""
    seed: Tensor | None
    """[] int64; None without dropout."""


class RowSums(NamedTuple):
    """Sums over the keys of each query, or the gradients of such sums: [B, H, T] float32, None if not needed."""

    weight: Tensor | None
    w_log_w: Tensor | None


class Scaling(NamedTuple):
    """What turns distances into the Inhibitor's r = distance · inv_gamma − shift."""

    inv_gamma: float
    shift: Tensor
    """Of each head, [H]."""


@dataclass(frozen=True)
class PointwiseKernelConfig:
    """Constants of a pointwise kernel."""

    D: int
    block_d: int
    """D, rounded up to a power of 2 that is at least 16."""
    block_t: int
    block_s: int
    activation: Activation
    exponent: int
    """Of the power of ReLU; 1 for the sigmoid."""
    factor_shape: int
    """Of `shape_per_query`."""
    has_bias: bool
    bias_shape: int
    """0 without a bias."""
    is_causal: bool
    has_dropout: bool
    row_sums: int
    """Row sums, or gradients of them: 0 none, 1 Σ w, 2 also Σ w log w."""


@dataclass(frozen=True)
class InhibitorKernelConfig:
    """Constants of an Inhibitor's kernel."""

    D: int
    block_d: int
    V: int
    block_v: int
    """Sizes of heads and values, and powers of 2 that are at least as large."""
    block: int
    """Queries or keys that a program holds."""
    is_causal: bool
    has_dropout: bool
    uses_ptx: bool
    """Whether it may contain NVIDIA's assembly."""


def strided(x: Tensor) -> Strided:
    """Return a tensor [B, H, length, D] with its strides."""
    return Strided(x, *x.stride())


def shape_per_query(x: Tensor) -> int:
    """Return what numbers [B or 1, T or 1] differ by: 1 sentence, 2 query, 3 both, 0 neither."""
    B, T = x.shape
    return (B > 1) + 2 * (T > 1)


def next_power_of_2(n: int) -> int:
    """Return the lowest power of 2 that is at least n; Triton's takes much longer."""
    return 1 << (n - 1).bit_length()
