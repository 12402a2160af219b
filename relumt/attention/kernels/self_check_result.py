"""Compare the results of a kernel with float64. Shapes: B batch, H heads, T queries, S keys."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from relumt.attention.mask import AttentionMask

Outputs = Callable[..., Sequence[Any]]
"""A function of tensors that returns tensors, or None in the place of outputs that are not needed."""

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


def compare(
    attend: Outputs, exact: Outputs, inputs: list[Tensor], grads: list[Tensor], tolerances: dict[str, float]
) -> Iterator[Result]:
    """Compare a kernel, `attend`, with `exact`.

    Args:
        attend, exact: functions of `inputs`.
        inputs: in float64 on the CPU.
        grads: gradients of the first outputs; the others are not compared.
        tolerances: name → relative error that is allowed, of the outputs and then of the gradients of all inputs.
    """
    actual, expected = (_with_gradients(function, inputs, grads) for function in (attend, exact))
    for (name, tolerance), ours, theirs in zip(tolerances.items(), actual, expected, strict=True):
        yield Result(name, ours, theirs, tolerance)


def make_mask(has_key_mask: bool, is_causal: bool, B: int, T: int, S: int) -> tuple[AttentionMask, Tensor]:
    """Return a mask in which one of B = 2 sentences has 7 keys of padding, and the same as a matrix, [B, 1, T, S]."""
    key_mask = torch.arange(S) < torch.tensor([S, S - 7])[:, None] if has_key_mask else None
    mask = AttentionMask(key_mask, is_causal)
    dense = mask.to_dense(T, S)
    return mask, (torch.ones(1, dtype=torch.bool) if dense is None else dense).expand(B, 1, T, S)


def probe_dropout(attend: Outputs, q: Tensor, k: Tensor, value_dim: int, *others: Tensor) -> Tensor:
    """Return which pairs dropout keeps, [B, H, T, S] bool, of queries and keys that let every visible pair contribute.

    Values that are slices of the identity make the output show the pairs that are left.
    """
    S = k.shape[2]
    values = F.pad(torch.eye(S), (0, -S % value_dim)).split(value_dim, dim=1)
    with torch.no_grad():
        slices = [attend(q, k, v.expand(*k.shape[:3], value_dim).contiguous(), *others)[0] for v in values]
    return torch.cat(slices, dim=-1)[..., :S].ne(0).cpu()


def _with_gradients(attend: Outputs, inputs: list[Tensor], grads: list[Tensor]) -> list[Tensor]:
    """Return the first outputs, as many as there are gradients of outputs, and the gradients of the inputs."""
    inputs = [x.detach().requires_grad_() for x in inputs]
    outputs = attend(*inputs)[: len(grads)]
    gradients = torch.autograd.grad(outputs, inputs, [grad.to(x) for x, grad in zip(outputs, grads, strict=True)])
    return [x.detach() for x in (*outputs, *gradients)]
