"""Seeds of the dropout inside kernels."""

import torch
from torch import Tensor


def draw_seed(device: torch.device) -> Tensor:
    """Draw a seed from the device's generator, [] int64 of 31 bits. It stays on the device, so a GPU does not wait."""
    return torch.randint(2**31 - 1, (), device=device)
