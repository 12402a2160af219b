"""Compare the results of a kernel with float64."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

MAX_ELEMENT_FACTOR = 4
"""How many times the tolerance the largest error of an element may be, relative to the largest element."""


class Result(NamedTuple):
    """A result as a kernel computed it and as float64 does, and the relative error that is allowed."""

    name: str
    actual: Tensor
    expected: Tensor
    tolerance: float

    def disagreement(self) -> str:
        """Return in which way both differ by more than rounding; "" if they do not. NaN and ∞ differ."""
        actual, expected = self.actual.double().cpu(), self.expected.double()
        if actual.shape != expected.shape:
            return f"the {self.name} has shape {list(actual.shape)} instead of {list(expected.shape)}"
        difference = actual - expected
        error = (difference.norm() / expected.norm()).item()
        element_error = (difference.abs().max() / expected.abs().max()).item() / MAX_ELEMENT_FACTOR
        worst = max(error, element_error) if math.isfinite(error + element_error) else math.inf
        if worst <= self.tolerance:
            return ""
        return f"the {self.name} differs from float64 by {worst:.1g} (allowed: {self.tolerance:.1g})"


def with_gradients(
    attend: Callable[..., Sequence[Tensor | None]], inputs: list[Tensor], grads: list[Tensor]
) -> list[Tensor]:
    """Return the first outputs, as many as there are gradients of outputs, and the gradients of the inputs."""
    inputs = [x.detach().requires_grad_() for x in inputs]
    outputs = [x for x in attend(*inputs)[: len(grads)] if x is not None]
    gradients = torch.autograd.grad(outputs, inputs, [grad.to(x) for x, grad in zip(outputs, grads, strict=True)])
    return [x.detach() for x in (*outputs, *gradients)]
