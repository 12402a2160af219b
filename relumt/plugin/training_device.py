"""Checks of the flags that choose the device, the number format and the compilation of training."""

from argparse import Namespace

import torch

from relumt.attention.variant_spec import flag_name
from relumt.errors import UserError
from relumt.plugin import cpu_products

GPU_FLAGS = ("memory_efficient_fp16", "memory_efficient_bf16", "fp16", "bf16", "amp")
"""Attributes of fairseq's flags that train in half precision; the first two imply the next two."""

CPU_BF16_FLAG = "--cpu-bf16"
"""Flag of relumt's criterions: autocast to bf16 on a CPU. The weights stay in fp32, unlike with fairseq's --bf16."""


def check_training_device(args: Namespace) -> None:
    """Check that the machine has what --fp16, --bf16, --amp or --cpu-bf16 need, and that --compile can be used.

    On a CPU, fairseq fails with a traceback, ignores these flags or trains slowly in half precision.

    Raises:
        UserError: the flags need a GPU, and there is none or --cpu rules it out; or --cpu-bf16 or --compile cannot be
            used.
    """
    if getattr(args, "compile", False) and getattr(args, "quantization_config_path", None):
        raise UserError("--compile cannot be combined with --quantization-config-path, which replaces layers; drop one")
    if getattr(args, "compile", False) and getattr(args, "attention_softmax_epochs", 0):
        raise UserError(
            "--compile cannot be combined with --attention-softmax-epochs, which exchanges layers; drop one"
        )
    uses_gpu = torch.cuda.is_available() and not getattr(args, "cpu", False)
    if getattr(args, "cpu_bf16", False):
        if uses_gpu:
            raise UserError(f"{CPU_BF16_FLAG} trains on the CPU, but there is a GPU; use --bf16, or add --cpu")
        if recomputes_activations(args):
            raise UserError(
                f"{CPU_BF16_FLAG} cannot be combined with --checkpoint-activations and --offload-activations, which "
                "would compute activations again in fp32; drop one of them"
            )
        require_fast_bf16(CPU_BF16_FLAG)
    given = [flag_name(name) for name in GPU_FLAGS if getattr(args, name, False)]
    if given and not uses_gpu:
        raise UserError(
            f"{given[0]} needs a GPU, and none was found or --cpu is set; drop the flag to train in fp32, or train in "
            f"bf16 with relumt's criterions and {CPU_BF16_FLAG}"
        )


def recomputes_activations(args: Namespace) -> bool:
    """Return whether the backward pass computes activations again: --offload-activations implies the other flag."""
    return any(getattr(args, f"{name}_activations", False) for name in ("checkpoint", "offload"))


def check_translation_in_bf16(is_cpu_forced: bool) -> None:
    """Check that fairseq-generate's --bf16 has an effect: fairseq ignores it, relumt's beam search takes it on a CPU.

    Args:
        is_cpu_forced: whether --cpu is set.

    Raises:
        UserError: there is a GPU that would be used, or bf16 would be slower than fp32.
    """
    if torch.cuda.is_available() and not is_cpu_forced:
        raise UserError(
            "--bf16 translates on a CPU, but there is a GPU; drop the flag to translate in fp32 on the GPU, or hide "
            "the GPU with CUDA_VISIBLE_DEVICES="
        )
    require_fast_bf16("--bf16")


def require_fast_bf16(flag: str) -> None:
    """Raise UserError, which names `flag`, if bf16 would be slower than fp32 on this CPU."""
    if not cpu_products.has_fast_bf16():
        raise UserError(
            f"{flag} needs a CPU with AVX512-BF16 or AMX, because bf16 is slower than fp32 on others; drop the flag"
        )
