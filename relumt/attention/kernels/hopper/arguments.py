"""Arguments of the kernels for Hopper. Shapes: B batch, H heads, T queries, S keys, D head size.

Tensors are packed in named tuples, as in `triton_arguments`. Triton takes no descriptors for TMA in a tuple, and would
compile again for numbers there that are divisible by 16, or 1, so strides f_b, f_t and bias_b are arguments of their
own. Kernels never pack constants, which an assignment would turn into run-time values.
"""

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor


class Padding(NamedTuple):
    """Where hidden keys are; None if all are visible."""

    key_bounds: Tensor | None
    """[B, 2] int32, each sentence's first real key and the index after its last."""
    mixed: Tensor | None
    """[B, ceil(S / 128)] int32, 1 for blocks that have hidden keys."""
    visible: Tensor | None
    """[B, ceil(S / 128), 8] int32: bit k of word c says whether a block's key 8k + c is visible, if a kernel asks."""


class Scaling(NamedTuple):
    """What turns scores into weights, see `powers`, and what results are multiplied by."""

    factor: Tensor
    """f [B, T] with strides f_b, f_t; for gradients [B] with stride f_b."""
    bias: Tensor | None
    """b [B] with stride bias_b, if `is_shifted`."""
    scale: float


class Dropout(NamedTuple):
    """Which pairs `forward` drops, if `has_dropout`."""

    kept: Tensor | None
    """[B*H, ceil(S / 128), ceil(T / 128) * 64, 8, 2] int16: words of `layouts`, with queries as rows."""
    seed: Tensor | None
    """One int64. It is read by the kernel, so that a CUDA graph can change it."""
    threshold: int
    """See `dropout`."""


class Stored(NamedTuple):
    """What other kernels have stored, or `dkdv` stores, for the gradients; T and S are rounded up to multiples of 128.

    Two words of bits are one here, but for `kept` of `dq_stats`.
    """

    kept: Tensor | None
    """[B*H, S/128, T/2, 8] int32, that of `Dropout`, if `has_dropout`."""
    bits: Tensor | None
    """[B*H, T/128, S/2, 8] int32, for `dkdv` two of int16: words with keys as rows, if p is 1 without row sums."""
    row_terms: Tensor | None
    """[B*H, T] int64 if `row_sums` is 2, float32 if it is 1, see `prepare.row_terms`."""


@dataclass(frozen=True)
class KernelConfig:
    """Constants of a kernel, its argument CONFIG; it is compiled for each value.

    Triton tells values apart by their text, so fields are numbers.
    """

    D: int
    """Head size, 64 or 128."""
    stages: int
    """Number of buffers for the blocks that warpgroups visit."""
    block: int = 128
    """Keys of a block, or queries in `dkdv`."""
    num_warpgroups: int = 2
    """Warpgroups that compute, with 64 queries each, or 64 keys in `dkdv`."""
    registers: int = 240
    """Registers of each of their threads."""
    is_causal: bool = False
    """Whether query i sees keys j ≤ S − T + i alone."""
    is_padded: bool = False
    """Whether keys are hidden, so that there is a `Padding`."""
    has_dropout: bool = False
    """Whether pairs are dropped: `forward` stores a bit for each, which other kernels load."""
    row_sums: int = 0
    """Sums of each query's weights w, or in the backward pass their gradients: 0 none, 1 Σ w, 2 also Σ w log w."""
    has_factor: bool = False
    """In the backward pass: whether each sentence has a factor f. Otherwise dO contains factors and `scale`."""
    exponent: int = 1
    """p of `powers`."""
    is_shifted: bool = False
    """Whether scores are scaled, and a bias added, before ReLU; see `powers`."""
