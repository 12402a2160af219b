"""How a pointwise Triton kernel is launched, and the names by which configurations are chosen."""

from typing import Literal, NamedTuple

KernelName = Literal["forward", "backward_dq", "backward_dkdv"]
CallKind = Literal["short", "long", "long_full", "dropout", "wide", "wide_dropout", "float32"]
"""Kind of call, see `pointwise_launch_configs.call_kind`."""


class LaunchConfig(NamedTuple):
    """How a kernel is launched, by the names of its arguments: tile size, warps per program, stages of its pipeline."""

    BLOCK_T: int
    BLOCK_S: int
    num_warps: int
    num_stages: int
