"""Where the real keys of each sentence are, so that kernels can skip padding. Shapes: B batch, S keys."""

import torch
from torch import Tensor

from relumt.attention.tensor_cache import cached_on


def key_bytes(key_mask: Tensor | None) -> Tensor | None:
    """Return a mask of bool as contiguous uint8, because Triton cannot load bool; None for None."""
    return None if key_mask is None else key_mask.contiguous().view(torch.uint8)


def key_bounds(key_mask: Tensor | None) -> Tensor | None:
    """Return each sentence's first real key and the index after its last, [B, 2] int32; 0, 0 if it has none.

    They are computed once for all layers that get the same mask.

    Args:
        key_mask: [B, S] bool, False for padding; None if all keys are real, which returns None.
    """
    return None if key_mask is None else cached_on(key_mask, "key_bounds", _compute_key_bounds)


def _compute_key_bounds(key_mask: Tensor) -> Tensor:
    keys = key_mask.to(torch.uint8)  # argmax does not support bool; torch 2.11 cannot compile a view of it
    has_keys = keys.amax(-1) > 0
    start, stop = keys.argmax(-1), keys.shape[1] - keys.flip(-1).argmax(-1)
    return torch.stack([start.where(has_keys, 0), stop.where(has_keys, 0)], -1).int()
