"""Launch kernels on the GPU of their tensors: Triton launches on the current device, whatever its arguments are on."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import torch

Result = TypeVar("Result")


def use_tensor_device(method: Callable[..., Result]) -> Callable[..., Result]:
    """Make the `forward` or `backward` of an autograd.Function run with the device of its first tensor as current.

    If no argument is a tensor, as in a backward pass without gradients, a tensor saved by the forward pass counts.
    """

    @functools.wraps(method)
    def guarded(ctx: Any, *arguments: Any) -> Result:
        tensors = [argument for argument in arguments if isinstance(argument, torch.Tensor)] or ctx.saved_tensors
        with torch.cuda.device_of(tensors[0]):  # does nothing for tensors on a CPU
            return method(ctx, *arguments)

    return guarded
