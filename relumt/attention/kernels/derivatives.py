"""Kernels have first derivatives alone; asked for others they have to say so, or a term would silently be missing."""

import functools
from collections.abc import Callable

import torch


def first_only(backward: Callable) -> Callable:
    """The `backward` of an autograd.Function, which raises RuntimeError where it is to be differentiated itself.

    torch's `once_differentiable` raises only if the gradient that comes in is a function of something too: of a
    gradient penalty it would leave a part out.
    """

    @functools.wraps(backward)
    def checked(ctx, *grads: torch.Tensor | None) -> tuple:
        if torch.is_grad_enabled():  # create_graph=True
            raise RuntimeError(
                "this kernel has first derivatives alone; for more (create_graph=True) set RELUMT_KERNELS=reference, "
                "and take the Inhibitor's implementation 'naive'"
            )
        return backward(ctx, *grads)

    return checked
