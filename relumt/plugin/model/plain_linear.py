"""Whether calling a layer is only a product, so that another product can replace the call."""

from typing import TypeGuard

from torch import nn

HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def is_plain_linear(module: object) -> TypeGuard[nn.Linear]:
    """Return whether calling a module does nothing but x·Wᵀ + b with its own weight and bias, which may replace it.

    Hooks observe or change what a layer computes; pruning and the older kind of weight normalization write its weight
    in one. Subclasses and parametrized layers have another type.
    """
    return type(module) is nn.Linear and not any(getattr(module, name) for name in HOOKS)
