"""Tells whether something other than autograd observes each operator; then no tensor may be reused or overwritten.

`torch.func` wraps tensors for the time of a transform. Selective activation checkpointing, fake tensors and `make_fx`
keep or replace the results of operators: a kept result must not be overwritten, and what is computed under them must
not be remembered.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor

Function = TypeVar("Function", bound=Callable[..., Any])


def constant_in_compiled_code(function: Function) -> Function:
    """Let `torch.compile` call a function of constants while it traces, and keep the result.

    As torch.compiler.assume_constant_result does, which would import torch._dynamo now: 2 seconds.
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


def is_traced() -> bool:
    """Return whether PyTorch compiles or exports the call, or `torch.func` transforms it."""
    return torch.compiler.is_compiling() or is_in_torch_func()


def needs_pytorch_operators() -> bool:
    """Return whether kernels cannot serve: in exported programs, and under `torch.func`, compiled or not."""
    return is_exporting() or _has_functorch_level()


@constant_in_compiled_code
def is_exporting() -> bool:
    """Return `torch.compiler.is_exporting()`, which torch 2.11 takes as true in all compiled code."""
    return torch.compiler.is_exporting()


@constant_in_compiled_code
def _has_functorch_level() -> bool:
    return torch._C._functorch.peek_interpreter_stack() is not None


def is_transformed() -> bool:
    """Return whether a transform of `torch.func` or a mode that sees operators is active; False in compiled code."""
    return is_in_torch_func() or (not torch.compiler.is_compiling() and torch._C._len_torch_dispatch_stack() > 0)


def is_in_torch_func() -> bool:
    """Return whether a transform of `torch.func` is active; False in compiled code."""
    return not torch.compiler.is_compiling() and torch._C._functorch.peek_interpreter_stack() is not None


def num_reverse_derivatives(x: Tensor) -> int:
    """Return how many nested reverse-mode transforms of `torch.func` differentiate x; 0 in compiled code."""
    count = 0
    while is_in_torch_func() and torch._C._functorch.is_functorch_wrapped_tensor(x):
        count += torch._C._functorch.is_gradtrackingtensor(x) and x.requires_grad
        x = torch._C._functorch.get_unwrapped(x)
    return count


def add_to(x: Tensor, y: Tensor) -> Tensor:
    """Return x + y; x may be overwritten."""
    return x + y if is_transformed() else x.add_(y)
