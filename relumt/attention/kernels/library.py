"""Kernels as operators of PyTorch: `torch.ops.relumt`.

Compiled graphs, selective activation checkpointing and fake tensors see an operator, not what happens inside it. An
operator's last argument names the module in this folder that computes it.
"""

import functools
import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeVar

import torch
from torch import Tensor

_LIBRARY = torch.library.Library("relumt", "FRAGMENT")  # its operators live as long as it does

AutogradFunction = type[torch.autograd.Function]
Result = TypeVar("Result")


@functools.cache
def kernel_module(name: str) -> ModuleType:
    """Import a module of this folder, here because Triton and Numba are slow to import and Triton is optional."""
    return importlib.import_module(f"relumt.attention.kernels.{name}")


def register(
    schema: str,
    compute: Callable[..., Any],
    fake: Callable[..., Any],
    setup_context: Callable[..., None] | None = None,
    backward: Callable[..., Any] | None = None,
) -> Any:
    """Register an operator, which `torch.library.custom_op` would make slower to call, and return it.

    Args:
        schema: its name, arguments and results.
        compute: computes it on every device.
        fake: returns empty results of the right shapes, strides and types.
        setup_context, backward: as for `torch.library.register_autograd`; None if there is no derivative.
    """
    name = schema.partition("(")[0]
    if hasattr(torch.ops.relumt, name):  # from an earlier import of this package, as after importlib.reload
        return getattr(torch.ops.relumt, name).default
    _LIBRARY.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
    for device in ("CPU", "CUDA"):
        _LIBRARY.impl(name, compute, device)
    torch.library.register_fake(f"relumt::{name}", fake, lib=_LIBRARY)
    if backward is not None:
        torch.library.register_autograd(f"relumt::{name}", backward, setup_context=setup_context, lib=_LIBRARY)
    return getattr(torch.ops.relumt, name).default


def use_tensor_device(function: Callable[..., Result]) -> Callable[..., Result]:
    """Make a function run with the device of its first argument, a tensor, as current: Triton launches on that one."""

    @functools.wraps(function)
    def guarded(*arguments: Any) -> Result:
        with torch.cuda.device_of(arguments[0]):  # does nothing for tensors on a CPU
            return function(*arguments)

    return guarded


def draw_seed(device: torch.device) -> Tensor:
    """Draw a seed of dropout, [] int64 of 31 bits, from the device's generator. It stays there: a GPU does not wait."""
    return torch.randint(2**31 - 1, (), device=device)


def call(operator: Any, function: AutogradFunction, *arguments: Any) -> Any:
    """Call an operator; `function` is the same with derivatives that cost less per call than registered ones do."""
    if torch.compiler.is_compiling() or not torch.is_grad_enabled():
        return operator(*arguments)
    return function.apply(*arguments)
