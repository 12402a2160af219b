"""Tile sizes, warps and pipeline stages of the pointwise Triton kernels.

Tile sizes are multiples of 16, as dropout's random numbers require. `python benchmarks/tune_launch_configs.py` times
candidates on the GPU at hand; the configurations below were chosen without a GPU, by counting instructions
(docs/kernels.md).
"""

from typing import NamedTuple

import torch
from torch import Tensor

SHORT = 64
"""The longest sentence that gets small tiles."""


class LaunchConfig(NamedTuple):
    """How a kernel is launched, by the names of its arguments: tile size, warps per program, stages of its pipeline."""

    BLOCK_T: int
    BLOCK_S: int
    num_warps: int
    num_stages: int


# A wgmma instruction takes 64 rows per four warps: queries where a program holds queries, keys where it holds keys.
LAUNCH_CONFIGS = {
    "forward": {
        "short": LaunchConfig(64, 64, 4, 2),
        "long": LaunchConfig(128, 128, 8, 3),
        "dropout": LaunchConfig(128, 64, 8, 2),
        "wide": LaunchConfig(64, 32, 4, 2),
        "float32": LaunchConfig(32, 32, 4, 1),
    },
    "backward_dq": {
        "short": LaunchConfig(64, 64, 4, 2),
        "long": LaunchConfig(128, 64, 8, 2),
        "dropout": LaunchConfig(128, 64, 8, 2),
        "wide": LaunchConfig(64, 32, 4, 2),
        "float32": LaunchConfig(32, 32, 4, 1),
    },
    "backward_dkdv": {
        "short": LaunchConfig(64, 64, 4, 2),
        "long": LaunchConfig(64, 128, 8, 2),
        "dropout": LaunchConfig(32, 128, 8, 2),
        "wide": LaunchConfig(16, 64, 4, 2),
        "float32": LaunchConfig(32, 32, 4, 1),
    },
}
"""Kernel → kind of call → configuration."""


def call_kind(x: Tensor, dropout_p: float) -> str:
    """Return the kind of a call whose programs hold blocks of x, [B, H, T, D]: q, or k in `backward_dkdv`."""
    if x.dtype == torch.float32:
        return "float32"
    if x.shape[3] > 64:
        return "wide"
    if x.shape[2] <= SHORT:
        return "short"
    return "dropout" if dropout_p else "long"


def launch_config(kernel: str, x: Tensor, dropout_p: float) -> LaunchConfig:
    """Return the configuration of a kernel; see `call_kind` for the arguments."""
    return LAUNCH_CONFIGS[kernel][call_kind(x, dropout_p)]
