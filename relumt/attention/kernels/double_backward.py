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
        if torch.is_grad_enabled():  # only create_graph=True enables gradients during a backward pass
            raise RuntimeError(
                "fused attention has no second derivatives (create_graph=True); set RELUMT_KERNELS=reference, and "
                "--inhibitor-implementation naive for the Inhibitor"
            )
        return backward(ctx, *grads)

    return checked
