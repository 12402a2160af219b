"""Tells whether something other than autograd observes each operator; then no tensor may be reused or overwritten.

`torch.func` wraps tensors for the time of a transform. Selective activation checkpointing, fake tensors and `make_fx`
keep or replace the results of operators: a kept result must not be overwritten, and what is computed under them must
not be remembered.
"""

import torch
from torch import Tensor


def is_transformed() -> bool:
    """Return whether a transform of `torch.func` or a mode that sees operators is active; False in compiled code."""
    return is_in_torch_func() or (not torch.compiler.is_compiling() and torch._C._len_torch_dispatch_stack() > 0)


def is_in_torch_func() -> bool:
    """Return whether a transform of `torch.func` is active; False in compiled code."""
    return not torch.compiler.is_compiling() and torch._C._functorch.peek_interpreter_stack() is not None


def num_reverse_transforms() -> int:
    """Return how many nested transforms of `torch.func` differentiate in reverse mode; 0 in compiled code."""
    levels = torch._C._functorch.get_interpreter_stack() if is_in_torch_func() else None
    return sum(level.key() == torch._C._functorch.TransformType.Grad for level in levels or [])


def add_to(x: Tensor, y: Tensor) -> Tensor:
    """Return x + y; x may be overwritten."""
    return x + y if is_transformed() else x.add_(y)
