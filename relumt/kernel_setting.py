"""The environment variable RELUMT_KERNELS, which restricts the choice of kernels; needs no PyTorch."""

import os
from typing import Literal, get_args

from relumt.errors import UserError

KernelSetting = Literal["auto", "fused", "reference"]

VARIABLE = "RELUMT_KERNELS"
CHOICES: tuple[KernelSetting, ...] = get_args(KernelSetting)


def kernel_choice() -> KernelSetting:
    """Return the value of RELUMT_KERNELS; raise UserError if it is not one of CHOICES."""
    choice = os.environ.get(VARIABLE, "auto")
    if choice not in CHOICES:
        raise UserError(f"{VARIABLE} is '{choice}'; it must be one of {', '.join(CHOICES)}")
    return choice


def wants_triton(setting: KernelSetting, device_type: str) -> bool:
    """Return whether Triton is to be used on a device of a type: a GPU ("cuda") unless refused, others on demand."""
    return setting == "fused" or (setting == "auto" and device_type == "cuda")
