"""What a kernel needs to know about a mechanism with pointwise weights. Shapes: B batch, T queries."""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

Activation = Literal["relu", "relu2", "relu3", "relu4", "relu5", "relu6", "relu7", "relu8", "sigmoid"]
POWERS_OF_RELU: tuple[Activation, ...] = ("relu", "relu2", "relu3", "relu4", "relu5", "relu6", "relu7", "relu8")


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


def is_plain(activation: Activation, has_bias: bool, row_sums: int) -> bool:
    """Return whether a call computes weights of ReLU(f·q·k) and needs nothing else of them."""
    return activation == "relu" and not has_bias and not row_sums


def exponent(activation: str) -> int:  # Triton compiles it, and does not know Literal
    """Return the power of ReLU; 1 for the sigmoid."""
    return int(activation.removeprefix("relu") or 1) if activation.startswith("relu") else 1
