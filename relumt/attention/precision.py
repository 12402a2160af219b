"""Number types: what half precision is computed in, and how results are cast back.

Half precision may come from a model in fp16 or bf16, or from autocast, on a GPU or a CPU. In all cases q, k and v have
been rounded by the layers that computed them, and attention goes on in float32. In bf16, sums of weights would keep
three digits, too few for the logarithms of the regularizer.
"""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

HALF_DTYPES = (torch.float16, torch.bfloat16)


def without_autocast(x: Tensor) -> AbstractContextManager[object]:
    """Return a context in which products keep the dtype of their inputs; it does nothing if autocast is off."""
    device = x.device.type
    is_enabled = device != "meta" and torch.is_autocast_enabled(device)  # meta has no autocast
    return torch.autocast(device, enabled=False) if is_enabled else nullcontext()


def at_least_float32(x: Tensor) -> Tensor:
    """Return `x` in float32 if it is in half precision, else as it is."""
    return x.float() if x.dtype in HALF_DTYPES else x


def cast_saturating(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Cast `x` to `dtype`; values out of range become its largest finite value.

    An infinity would become a NaN in the next layer.
    """
    largest = torch.finfo(dtype).max
    if largest < torch.finfo(x.dtype).max:
        x = x.clamp(-largest, largest)
    return x.to(dtype)
