"""Computes a part of a module again in the backward pass instead of keeping what autograd would save of it."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


def recompute_in_backward(
    module: nn.Module, settings: Sequence[str], function: Callable[..., Any], inputs: Sequence[Tensor], *others: Any
) -> Any:
    """Return `function(*inputs, *others)`; the backward pass calls it again, with the same random numbers.

    It then finds the attributes of `module` that `settings` name as they are now, whatever they have become.

    Raises:
        RuntimeError: in the backward pass, if an input or a parameter of `module` was overwritten since, as autograd
            does for tensors that it saved.
    """
    if torch.compiler.is_compiling():  # the compiler keeps what the graph reads
        return checkpoint(function, *inputs, *others, use_reentrant=False)
    original = {name: getattr(module, name) for name in settings}
    tensors = [*inputs, *module.parameters()]
    versions = [tensor._version for tensor in tensors]

    def compute(*arguments: Any) -> Any:
        if [tensor._version for tensor in tensors] != versions:
            raise RuntimeError(
                f"an input or a parameter of {type(module).__name__} was modified in place before the backward pass, "
                "which computes its weights again; modify a copy"
            )
        present = {name: getattr(module, name) for name in settings}
        vars(module).update(original)
        try:
            return function(*arguments)
        finally:
            vars(module).update(present)

    return checkpoint(compute, *inputs, *others, use_reentrant=False)
