"""The Triton kernels as they are launched, compiled for GPUs that need not be present."""

import itertools
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

if os.environ.get("TRITON_INTERPRET") == "1":
    sys.exit("relumt: error: TRITON_INTERPRET is 1; unset it, so that Triton compiles")

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from relumt.attention.kernels import (
    inhibitor_triton,
    inhibitor_triton_fp16,
    inhibitor_triton_fp32,
    pointwise_triton_backward,
    pointwise_triton_forward,
)
from relumt.attention.kernels.pointwise_launch_configs import LAUNCH_CONFIGS, CallKind, KernelName, table_config

SHARED_MEMORY = {80: 163, 86: 99, 89: 99, 90: 227, 120: 99}
"""Compute capability -> KiB of shared memory that a program may use: `max_shared_memory_per_block_optin` in
libcudacxx/include/cuda/__device/arch_traits.h of github.com/NVIDIA/cccl."""

TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
FLOAT32 = {"Factor", "Bias", "WeightSum", "WLogW", "GradWeightSum", "GradWLogW", "Shift", "GradShift"}
"""Pointers to float32 in every kernel."""
MASK = ("KeyMask", "KeyBounds")
ROW_STATS = ("WeightSum", "WLogW", "GradWeightSum", "GradWLogW")
POINTWISE = {
    "forward": pointwise_triton_forward.forward,
    "backward_dq": pointwise_triton_backward.backward_dq,
    "backward_dkdv": pointwise_triton_backward.backward_dkdv,
}
OPTIONS = ("", "masks", "row stats", "all options", "all options with dropout")
"""What a call asks for; masks are a causal one and padding, all options are masks and row stats."""
VARIANTS = (("relu", "bf16"), ("sigmoid", "bf16"), ("relu", "fp16"))
"""Activations and half-precision types."""


@dataclass(frozen=True)
class Binary:
    """A compiled kernel.

    Attributes:
        cubin: the machine code.
        registers, spilled_bytes: per thread.
        shared_memory: of a program, in KiB.
    """

    cubin: bytes
    registers: int
    spilled_bytes: int
    shared_memory: float

    def loops(self) -> list[list[str]]:
        """Return the instructions of each loop, which ends with a branch to an earlier label."""
        instructions, labels, found = [], {}, []
        for line in _inspect("nvdisasm", "-c", self.cubin).splitlines():
            if label := re.match(r"\s*(\.L\w+):", line):
                labels[label[1]] = len(instructions)
            elif instruction := re.match(r"\s*/\*[0-9a-f]+\*/\s+(.*?);", line):
                instructions.append(instruction[1])
        for end, instruction in enumerate(instructions):
            target = re.search(r"BRA\b.*`\((\.L\w+)\)", instruction)
            if target and labels.get(target[1], end) < end:
                found.append(instructions[labels[target[1]] : end + 1])
        return found


@dataclass(frozen=True)
class Kernel:
    """A kernel as it is launched.

    Attributes:
        name: in tables.
        function: compiled by Triton.
        capability: of the GPU, as in SHARED_MEMORY.
        dtype: Triton's name for the type of its tensors.
        absent: arguments that are None.
        constants: its compile-time arguments.
        num_warps, num_stages: how it is launched.
        pairs: in one iteration of its inner loop.
        float32: tensors that are float32 whatever `dtype` is.
    """

    name: str
    function: Any
    capability: int
    dtype: str
    absent: tuple[str, ...]
    constants: dict[str, Any]
    num_warps: int
    num_stages: int
    pairs: int
    float32: tuple[str, ...] = ()

    def compile(self) -> Binary:
        """Compile the kernel with last strides of 1, and pointers and other strides that are multiples of 16."""
        pointer_types = {"KeyMask": "u8", "KeyBounds": "i32"} | dict.fromkeys((*FLOAT32, *self.float32), "fp32")
        signature, constants, attributes = {}, {}, {}
        for index, name in enumerate(self.function.arg_names):
            if name in self.absent or name in self.constants or name.endswith("_d"):
                signature[name] = "constexpr"
                constants[(index,)] = None if name in self.absent else self.constants.get(name, 1)
                continue
            if name in ("dropout_p", "inv_gamma"):
                signature[name] = "fp32"
            elif name in ("H", "T", "S", "seed", "split_size", "stride") or "_" in name:
                signature[name] = "i32"
            else:
                signature[name] = f"*{pointer_types.get(name, self.dtype)}"
            is_stride = name == "stride" or name[-2:] in ("_b", "_h", "_t", "_s")
            if signature[name].startswith("*") or (is_stride and name not in self.function.do_not_specialize):
                attributes[(index,)] = [["tt.divisibility", 16]]
        source = ASTSource(fn=self.function, signature=signature, constexprs=constants, attrs=attributes)
        options = {"num_warps": self.num_warps, "num_stages": self.num_stages}
        compiled = triton.compile(source, target=GPUTarget("cuda", self.capability, 32), options=options)
        usage = _inspect("cuobjdump", "-res-usage", compiled.asm["cubin"])
        registers, stack = (int(re.search(rf"{name}:(\d+)", usage)[1]) for name in ("REG", "STACK"))
        return Binary(compiled.asm["cubin"], registers, stack, compiled.metadata.shared / 1024)


def _inspect(tool: str, option: str, cubin: bytes) -> str:
    """Return what one of NVIDIA's tools prints about a binary."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        return subprocess.run([TOOLS / tool, option, file.name], capture_output=True, text=True, check=True).stdout


def pointwise(
    capability: int, kernel: KernelName, kind: CallKind, activation: str, options: str, half_dtype: str
) -> Kernel:
    """Describe a kernel of pointwise attention with 64 dimensions per head, or 128 in wide kinds."""
    config = table_config(kernel, kind, SHARED_MEMORY[capability])
    head_dim = 128 if kind.startswith("wide") else 64
    has_all = options.startswith("all")
    has_row_stats, has_masks = has_all or options == "row stats", has_all or options == "masks"
    constants = {
        "D": head_dim, "BLOCK_D": head_dim, "ACTIVATION": activation, "CAUSAL": has_masks, "ROW_STATS": has_row_stats,
        "DROPOUT": "dropout" in options, "BLOCK_T": config.BLOCK_T, "BLOCK_S": config.BLOCK_S,
    }  # fmt: skip
    absent = (() if has_masks else MASK) + (() if has_row_stats else ROW_STATS)
    absent += () if activation == "sigmoid" else ("Bias",)  # no mechanism has ReLU and a bias
    return Kernel(
        ", ".join(filter(None, (activation, kernel, kind, options, half_dtype.replace("bf16", "")))),
        POINTWISE[kernel], capability, "fp32" if kind == "float32" else half_dtype, absent, constants,
        config.num_warps, config.num_stages, config.BLOCK_T * config.BLOCK_S,
    )  # fmt: skip


def inhibitor(capability: int, name: str, head_dim: int, is_signed: bool, half: bool, has_options: bool) -> Kernel:
    """Describe a kernel of the Inhibitor; the signed one has values of twice the size."""
    function = getattr(inhibitor_triton_fp16 if half else inhibitor_triton_fp32, name)
    value_dim = head_dim * (2 if is_signed else 1)
    block = inhibitor_triton.block_size(name.partition("_")[0], head_dim, value_dim)
    constants = {
        "D": head_dim, "BLOCK_D": head_dim, "V_SIZE": value_dim, "BLOCK_V": value_dim, "CAUSAL": has_options,
        "DROPOUT": has_options, "BLOCK": block, "USE_PTX": True,
    }  # fmt: skip
    constants = {name: value for name, value in constants.items() if name in function.arg_names}
    words = ("inhibitor_signed" if is_signed else "inhibitor", name, "half" if half else "", "wide" * (head_dim > 64))
    return Kernel(
        ", ".join(filter(None, (*words, "all options with dropout" if has_options else ""))), function, capability,
        "fp16" if half else "fp32", () if has_options else MASK, constants, 1, 1,
        block * (inhibitor_triton_fp16.RUN.value if half else 1), ("Q", "Out"),
    )  # fmt: skip


def _exists(kind: CallKind, options: str, activation: str, half_dtype: str) -> bool:
    """Return whether calls of a kind have these options.

    Of calls with row stats alone one variant is compiled, and masks alone only for long calls, whose other options make
    them another kind.
    """
    if options == "masks":
        return kind == "long" and activation == "relu"
    if options == "row stats" and (activation, half_dtype) != VARIANTS[0]:
        return False
    if kind == "float32":
        return half_dtype == "bf16"
    if kind in ("long", "long_full"):
        return "dropout" not in options and (kind == "long") == (activation == "relu" and not options)
    return kind == "short" or ("dropout" in kind) == ("dropout" in options)


def kernels(capability: int) -> Iterator[Kernel]:
    """Yield all kernels, of every kind of call and with every combination in OPTIONS, as a GPU would run them."""
    for kind, options, (activation, half_dtype) in itertools.product(get_args(CallKind), OPTIONS, VARIANTS):
        if _exists(kind, options, activation, half_dtype):
            for kernel in LAUNCH_CONFIGS:
                yield pointwise(capability, kernel, kind, activation, options, half_dtype)
    for has_options in (False, True):
        for head_dim in (64, 128):
            for is_signed in (False, True):
                for name in ("forward", "backward_dq", "backward_dkdv"):
                    yield inhibitor(capability, name, head_dim, is_signed, False, has_options)
                yield inhibitor(capability, "forward", head_dim, is_signed, True, has_options)
