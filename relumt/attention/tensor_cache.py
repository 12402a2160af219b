"""Cache values on the tensor that they were computed from, because all layers of a model share one mask."""

from collections.abc import Callable, Hashable
from typing import TypeVar

import torch
from torch import Tensor

from relumt.attention.transforms import is_transformed

Value = TypeVar("Value")


def cached_on(x: Tensor, name: Hashable, compute: Callable[[Tensor], Value]) -> Value:
    """Return compute(x), remembered under `name` for as long as x lives and no torch operator modifies it or the value.

    Writes through `x.data`, or through a NumPy array that shares its memory, go unnoticed: they leave x's version as it
    is.

    Not remembered under `torch.compile` or inference mode, where tensor versions are unavailable, nor under transforms,
    whose tensors outlive them (`transforms.py`), nor while a CUDA graph is captured, whose memory is reused.
    """
    if torch.compiler.is_compiling() or torch.is_inference_mode_enabled() or x.is_inference() or is_transformed():
        return compute(x)
    if x.is_cuda and torch.cuda.is_current_stream_capturing():
        return compute(x)
    values: dict[Hashable, tuple[object, Value]] = vars(x).setdefault("relumt_cache", {})
    if name in values:
        state, value = values[name]
        if state == _state(x, value):
            return value
    value = compute(x)
    values[name] = _state(x, value), value
    return value


def _state(x: Tensor, value: object) -> tuple[int, int, int]:
    """Return what differs once x or a value is modified, or if x is a copy, which takes the values along."""
    return id(x), x._version, value._version if isinstance(value, Tensor) else 0
