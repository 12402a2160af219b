"""Checks of the flags that choose the device and the number format of training."""

import importlib.util
from argparse import Namespace
from typing import Any

import torch

from relumt.attention.variant_spec import flag_name
from relumt.errors import UserError
from relumt.plugin import cpu_products

GPU_FLAGS = ("memory_efficient_fp16", "memory_efficient_bf16", "fp16", "bf16", "amp")
"""Attributes of fairseq's flags that train in half precision; the first two imply the next two."""

CPU_BF16_FLAG = "--cpu-bf16"
"""Flag of relumt's criterions: autocast to bf16 on a CPU. The weights stay in fp32, unlike with fairseq's --bf16."""


def check_training_device(args: Namespace) -> None:
    """Check that the machine has what --fp16, --bf16, --amp, --tpu or --cpu-bf16 need.

    fairseq sets `tpu` for --bf16, too. On a CPU it fails with a traceback, ignores these flags or trains slowly in
    half precision.

    Raises:
        UserError: the flags need a GPU or a TPU, and there is none or --cpu rules it out; or --cpu-bf16 cannot be used.
    """
    if getattr(args, "cpu_bf16", False):
        _check_cpu_bf16(args)
    given = [flag_name(name) for name in GPU_FLAGS if getattr(args, name, False)]
    is_tpu = getattr(args, "tpu", False)
    if is_tpu and importlib.util.find_spec("torch_xla"):
        return
    in_bf16 = f"or train in bf16 with relumt's criterions and {CPU_BF16_FLAG}"
    if given and not torch.cuda.is_available():
        raise UserError(f"{given[0]} needs a GPU, and none was found; drop the flag to train in fp32, {in_bf16}")
    if given and getattr(args, "cpu", False):
        raise UserError(f"{given[0]} needs a GPU, but --cpu is set; drop one of them, {in_bf16}")
    if is_tpu:
        flag = given[0] if given else "--tpu"
        raise UserError(f"{flag} asks for a TPU, but torch_xla is not installed; drop the flag, or use --fp16 on a GPU")


def _check_cpu_bf16(args: Namespace) -> None:
    """Raise UserError if --cpu-bf16 has no effect, contradicts another flag, or would be slower than fp32."""
    if torch.cuda.is_available() and not getattr(args, "cpu", False):
        raise UserError(f"{CPU_BF16_FLAG} trains on the CPU, but there is a GPU; use --bf16, or add --cpu")
    for name in ("offload_activations", "checkpoint_activations"):  # the first implies the second
        if getattr(args, name, False):
            raise UserError(
                f"{CPU_BF16_FLAG} cannot be combined with {flag_name(name)}, which would compute activations "
                "again in fp32; drop one of them"
            )
    _require_fast_bf16(CPU_BF16_FLAG)


def require_cpu_bf16(device: torch.device, is_training: bool) -> None:
    """Check that a forward pass with --cpu-bf16 runs on a CPU, and that it is fast enough to train.

    Computing a loss is allowed on any CPU, so that a trained model can be validated elsewhere.

    Raises:
        UserError: it does not, or is not.
    """
    if device.type != "cpu":
        raise UserError(f"{CPU_BF16_FLAG} trains on the CPU, but the batches are on {device}; use --bf16, or add --cpu")
    if is_training:
        _require_fast_bf16(CPU_BF16_FLAG)


def check_translation_in_bf16(is_cpu_forced: bool, generation: Any) -> None:
    """Check that fairseq-generate's --bf16 has an effect: fairseq ignores it, relumt's beam search takes it on a CPU.

    Args:
        is_cpu_forced: whether --cpu is set.
        generation: fairseq's settings of generation.

    Raises:
        UserError: there is a GPU that would be used, another search would be used, or bf16 would be slower than fp32.
    """
    for setting in ("print_alignment", "score_reference"):
        if getattr(generation, setting, None):
            raise UserError(
                f"--bf16 has no effect with {flag_name(setting)}, which does not use relumt's search; drop one of them"
            )
    if torch.cuda.is_available() and not is_cpu_forced:
        raise UserError(
            "--bf16 translates on a CPU, but there is a GPU; drop the flag to translate in fp32 on the GPU, or hide "
            "the GPU with CUDA_VISIBLE_DEVICES="
        )
    _require_fast_bf16("--bf16")


def _require_fast_bf16(flag: str) -> None:
    """Raise UserError, which names `flag`, if bf16 would be slower than fp32 on this CPU."""
    if not cpu_products.has_fast_bf16():
        raise UserError(
            f"{flag} needs a CPU with AVX512-BF16 or AMX, because bf16 is slower than fp32 on others; drop the flag"
        )
