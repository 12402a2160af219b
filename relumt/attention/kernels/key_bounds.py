"""Where the real keys of each sentence are, so that kernels can skip padding. Shapes: B batch, S keys."""

import torch
from torch import Tensor


def key_bounds(key_mask: Tensor | None) -> Tensor | None:
    """Return each sentence's first real key and the index after its last, [B, 2] int32; 0, 0 if it has none.

    Args:
        key_mask: [B, S] uint8, nonzero for real keys; None if all keys are real, which returns None.
    """
    if key_mask is None:
        return None
    has_keys = key_mask.amax(-1) > 0
    start, stop = key_mask.argmax(-1), key_mask.shape[1] - key_mask.flip(-1).argmax(-1)
    return torch.stack([start.where(has_keys, 0), stop.where(has_keys, 0)], -1).int()
