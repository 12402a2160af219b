"""Tile sizes, warps and pipeline stages of the pointwise Triton kernels.

Tile sizes are multiples of 16, as dropout's random numbers require. The table was made by counting instructions,
registers and shared memory (`benchmarks/count_instructions.py` in revision b0e79ce, and
`tests/attention/test_pointwise_compilation.py` for dropout); measurements on an H100 replaced some entries without
dropout for heads up to 64 that need 224 KiB.
"""

import functools
from typing import Literal, NamedTuple

import torch
from torch import Tensor

KernelName = Literal["forward", "backward_dq", "backward_dkdv"]
CallKind = Literal["short", "long", "long_full", "dropout", "dropout_full", "wide", "wide_dropout", "float32"]
"""Kind of call, see `call_kind`."""

SHORT = 64
"""The longest sentence that gets small tiles."""


class LaunchConfig(NamedTuple):
    """How a kernel is launched, by the names of its arguments: tile size, warps per program, stages of its pipeline."""

    BLOCK_T: int
    BLOCK_S: int
    num_warps: int
    num_stages: int


# A wgmma instruction takes 64 rows per four warps: queries where a program holds queries, keys where it holds keys.
LAUNCH_CONFIGS: dict[KernelName, dict[CallKind, dict[int, LaunchConfig]]] = {
    "forward": {
        "short": {0: LaunchConfig(64, 64, 4, 2)},
        "long": {0: LaunchConfig(128, 64, 8, 2), 224: LaunchConfig(128, 64, 8, 3)},
        "long_full": {0: LaunchConfig(128, 64, 8, 2), 224: LaunchConfig(128, 64, 8, 3)},
        "dropout": {0: LaunchConfig(128, 64, 8, 2), 224: LaunchConfig(128, 64, 8, 3)},
        "dropout_full": {0: LaunchConfig(128, 64, 8, 2), 224: LaunchConfig(128, 64, 8, 3)},
        "wide": {0: LaunchConfig(128, 32, 8, 2), 224: LaunchConfig(128, 128, 8, 2)},
        "wide_dropout": {0: LaunchConfig(128, 32, 8, 2), 224: LaunchConfig(128, 64, 8, 2)},
        "float32": {0: LaunchConfig(32, 32, 4, 1), 224: LaunchConfig(128, 64, 8, 1)},
    },
    "backward_dq": {
        "short": {0: LaunchConfig(64, 64, 4, 2)},
        "long": {0: LaunchConfig(128, 64, 8, 2), 224: LaunchConfig(128, 64, 8, 3)},
        "long_full": {0: LaunchConfig(128, 64, 8, 2)},
        "dropout": {0: LaunchConfig(128, 64, 8, 2), 224: LaunchConfig(128, 64, 8, 3)},
        "dropout_full": {0: LaunchConfig(128, 64, 8, 2), 224: LaunchConfig(128, 32, 8, 3)},
        "wide": {0: LaunchConfig(128, 32, 8, 2), 224: LaunchConfig(128, 64, 8, 2)},
        "wide_dropout": {0: LaunchConfig(128, 32, 8, 2), 224: LaunchConfig(128, 64, 8, 2)},
        "float32": {0: LaunchConfig(32, 32, 4, 1), 224: LaunchConfig(128, 64, 8, 1)},
    },
    "backward_dkdv": {
        "short": {0: LaunchConfig(32, 64, 4, 2)},
        "long": {0: LaunchConfig(32, 128, 8, 2), 224: LaunchConfig(128, 64, 4, 3)},
        "long_full": {0: LaunchConfig(32, 128, 8, 2), 224: LaunchConfig(64, 128, 8, 2)},
        "dropout": {0: LaunchConfig(32, 128, 8, 2), 224: LaunchConfig(64, 128, 8, 2)},
        "dropout_full": {0: LaunchConfig(32, 128, 8, 2)},
        "wide": {0: LaunchConfig(16, 128, 8, 2), 224: LaunchConfig(32, 128, 8, 2)},
        "wide_dropout": {0: LaunchConfig(16, 128, 8, 2)},
        "float32": {0: LaunchConfig(32, 32, 4, 1)},
    },
}
"""Kernel → kind of call → minimum shared memory per program, in KiB → configuration.

Programs may use 227 KiB on GPUs of compute capability 9.0 and 10.0, 163 on 8.0, and 99 on 8.6, 8.9 and 12.0.
"""

INTERPRETED = 0
"""Shared memory of Triton's interpreter, in KiB: it gets the blocks for the least, so that small cases have several."""


def call_kind(x: Tensor, has_dropout: bool, is_plain: bool) -> CallKind:
    """Return the kind of a call.

    Args:
        x: what its programs hold blocks of, [B, H, T, D]: q, or k in `backward_dkdv`.
        has_dropout: whether weights are dropped.
        is_plain: whether it needs nothing but ReLU(f·q·k), see `PointwiseParams.is_plain`. Other long calls are
            "long_full" or "dropout_full", because their programs hold more values.
    """
    if x.dtype == torch.float32:
        return "float32"
    if x.shape[3] > 64:
        return "wide_dropout" if has_dropout else "wide"
    if x.shape[2] <= SHORT:
        return "short"
    if has_dropout:
        return "dropout" if is_plain else "dropout_full"
    return "long" if is_plain else "long_full"


def table_config(kernel: KernelName, kind: CallKind, shared_memory: int) -> LaunchConfig:
    """Return the configuration for GPUs on which a program may use `shared_memory` KiB."""
    configs = LAUNCH_CONFIGS[kernel][kind]
    return configs[max(needed for needed in configs if needed <= shared_memory)]


@functools.cache
def shared_memory(device: torch.device) -> int:
    """Return how much shared memory a program may use, in KiB."""
    if device.type != "cuda":
        return INTERPRETED
    properties = torch.cuda.get_device_properties(device)
    return int(properties.shared_memory_per_block_optin) // 1024  # type: ignore[attr-defined]  # torch's stubs lack it
