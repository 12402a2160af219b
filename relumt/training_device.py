"""Checks of fairseq's flags that choose the device and the number format of training."""

import importlib.util
from argparse import Namespace

import torch

from relumt.errors import UserError

GPU_FLAGS = ("memory_efficient_fp16", "memory_efficient_bf16", "fp16", "bf16", "amp")
"""Attributes of fairseq's flags that train in half precision; the first two imply the next two."""


def check_training_device(args: Namespace) -> None:
    """Check that the machine has what --fp16, --bf16, --amp or --tpu need.

    fairseq sets `tpu` for --bf16, too. On a CPU it fails with a traceback, ignores these flags or trains slowly in
    half precision.

    Raises:
        UserError: the flags need a GPU or a TPU, and there is none or --cpu rules it out.
    """
    given = [f"--{name.replace('_', '-')}" for name in GPU_FLAGS if getattr(args, name, False)]
    is_tpu = getattr(args, "tpu", False)
    if is_tpu and importlib.util.find_spec("torch_xla"):
        return
    if given and not torch.cuda.is_available():
        raise UserError(f"{given[0]} needs a GPU, and none was found; drop the flag to train in fp32")
    if given and getattr(args, "cpu", False):
        raise UserError(f"{given[0]} needs a GPU, but --cpu is set; drop one of them")
    if is_tpu:
        flag = given[0] if given else "--tpu"
        raise UserError(f"{flag} asks for a TPU, but torch_xla is not installed; drop the flag, or use --fp16 on a GPU")
