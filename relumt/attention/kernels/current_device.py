"""Launch kernels on the GPU of their tensors: Triton launches on the current device, whatever its arguments are on."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import torch

Result = TypeVar("Result")


def use_tensor_device(function: Callable[..., Result]) -> Callable[..., Result]:
    """Make a function run with the device of its first argument, a tensor, as current."""

    @functools.wraps(function)
    def guarded(*arguments: Any) -> Result:
        with torch.cuda.device_of(arguments[0]):  # does nothing for tensors on a CPU
            return function(*arguments)

    return guarded
