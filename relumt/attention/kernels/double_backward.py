"""Refuse second derivatives, which the kernels do not have: otherwise a term would silently be missing."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def forbid_double_backward(
    backward: Callable[..., tuple[Tensor | None, ...]],
) -> Callable[..., tuple[Tensor | None, ...]]:
    """Make the `backward` of an autograd.Function raise RuntimeError when it is itself to be differentiated.

    torch's `once_differentiable` raises only if the incoming gradient requires a gradient too. A gradient penalty on a
    sum, whose incoming gradient is constant, would then lose a term without notice.
    """

    @functools.wraps(backward)
    def checked(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        refuse_double_backward(
            "fused attention", "set RELUMT_KERNELS=reference, and --inhibitor-implementation naive for the Inhibitor"
        )
        return backward(ctx, *grads)

    return checked


def refuse_double_backward(what: str, advice: str) -> None:
    """Raise RuntimeError in a backward pass that is itself to be differentiated, which `what` cannot be."""
    if torch.is_grad_enabled():  # only create_graph=True enables gradients during a backward pass
        raise RuntimeError(f"{what} has no second derivatives (create_graph=True); {advice}")
