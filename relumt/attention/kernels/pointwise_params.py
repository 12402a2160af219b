"""What a kernel needs to know about a mechanism with pointwise weights. Shapes: B batch, T queries."""

from dataclasses import dataclass

from torch import Tensor

Activation = str
"""A power of ReLU or "sigmoid"."""

POWERS_OF_RELU: tuple[Activation, ...] = ("relu", *(f"relu{n}" for n in range(2, 33)))


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


def exponent(activation: str) -> int:
    """Return the power of ReLU; 1 for the sigmoid."""
    return int(activation.removeprefix("relu") or 1) if activation.startswith("relu") else 1
