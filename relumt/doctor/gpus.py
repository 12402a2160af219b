"""The GPUs to check."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # PyTorch may be missing
    import torch


def find_gpus() -> "list[torch.device]":
    """Return one GPU of each model; none if torch sees none, or is broken."""
    try:
        import torch

        names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    except Exception:  # a check of `relumt doctor` says so
        return []
    return [torch.device("cuda", names.index(name)) for name in dict.fromkeys(names)]
