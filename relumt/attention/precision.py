"""Types of numbers: what half precision becomes while it is computed with, and how it comes back."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

HALF = (torch.float16, torch.bfloat16)


def without_autocast(x: Tensor) -> AbstractContextManager:
    """A block in which products are of their tensors' own type; costs nothing where they are anyway."""
    device = x.device.type
    return torch.autocast(device, enabled=False) if torch.is_autocast_enabled(device) else nullcontext()


def at_least_float32(x: Tensor) -> Tensor:
    """`x`, in float32 if its type is a half one."""
    return x.float() if x.dtype in HALF else x


def cast_saturating(x: Tensor, dtype: torch.dtype) -> Tensor:
    """`x` as `dtype`, values beyond its range held at its largest: an inf here would be a NaN one layer on."""
    largest = torch.finfo(dtype).max
    if largest < torch.finfo(x.dtype).max:
        x = x.clamp(-largest, largest)
    return x.to(dtype)
