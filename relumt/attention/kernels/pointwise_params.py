"""What a kernel needs to know about a mechanism with pointwise weights. Shapes: B batch, T queries."""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

Activation = Literal["relu", "sigmoid"]


@dataclass(frozen=True)
class PointwiseParams:
    """How products q_i·k_j become weights: φ(f_i·(q_i·k_j) + b_i).

    Attributes:
        activation: φ.
        factor: f, [B or 1, T or 1] float32 (float64 for `pointwise_blocked`), positive.
        bias: b, of the same kind; None for 0.
    """

    activation: Activation
    factor: Tensor
    bias: Tensor | None = None


def is_plain(activation: Activation, has_bias: bool, need_row_stats: bool) -> bool:
    """Return whether a call computes weights of ReLU(f·q·k) and needs nothing else of them."""
    return activation == "relu" and not has_bias and not need_row_stats
