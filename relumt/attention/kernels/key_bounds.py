"""Where the real keys of sentences are, so that blocks of padding are not visited. Shapes: B batch, S keys."""

import torch
from torch import Tensor


def bounds(keys: Tensor | None) -> Tensor | None:
    """First real key of each sentence and the one after the last, [B, 2] int32, of keys [B, S] uint8."""
    if keys is None:
        return None
    some = keys.amax(-1) > 0
    first, stop = keys.argmax(-1), keys.shape[1] - keys.flip(-1).argmax(-1)
    return torch.stack([first.where(some, 0), stop.where(some, 0)], -1).int()
