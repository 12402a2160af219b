"""Count the machine instructions per pair in the Triton kernels, for a GPU that need not be present.

    python benchmarks/count_instructions.py

Each kernel is compiled for sm_90 (H100, H200) as it is called for heads of 64, and its inner loop is disassembled. The
table shows the instructions of a warp per 32 pairs of a query and a key: all of them, floating-point ones, special
functions (logarithms, at an eighth of the rate), and exchanges between threads; then registers and spilled bytes per
thread (0 for a kernel that fits). These are not times: waiting is not counted. They show whether a change saved work.
"""

import argparse
import collections
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if os.environ.get("TRITON_INTERPRET") == "1":
    sys.exit("relumt: error: TRITON_INTERPRET is 1; unset it, so that Triton compiles")

import triton
from timing import print_origin
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, CompiledKernel

from relumt.attention.kernels import (
    inhibitor_triton,
    inhibitor_triton_fp16,
    inhibitor_triton_fp32,
    pointwise_triton_backward,
    pointwise_triton_forward,
)
from relumt.attention.kernels.pointwise_launch_configs import LAUNCH_CONFIGS
from relumt.errors import exit_on_user_error

TARGET = GPUTarget("cuda", 90, 32)
TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
FLOAT32 = {"Factor", "Bias", "WeightSum", "WLogW", "GradWeightSum", "GradWLogW", "Shift", "GradShift"}
"""Pointers to float32 in every kernel."""
OPTIONAL = ("KeyMask", "KeyBounds", "Bias")
ROW_STATS = ("WeightSum", "WLogW", "GradWeightSum", "GradWLogW")
POINTWISE = {
    "forward": pointwise_triton_forward.forward,
    "backward_dq": pointwise_triton_backward.backward_dq,
    "backward_dkdv": pointwise_triton_backward.backward_dkdv,
}
INSTRUCTION_KINDS = {
    "float": re.compile(r"FADD|FMUL|FFMA|FMNMX|FSEL|FSETP|FSET|HADD2|HFMA2|HMNMX2"),
    "special": re.compile("MUFU"),
    "exchange": re.compile("SHFL"),
}


@dataclass(frozen=True)
class Kernel:
    """A kernel as it is called.

    Attributes:
        name: in the table.
        function: compiled by Triton.
        dtype: Triton's name for the type of its tensors.
        absent: arguments that are None.
        constants: its compile-time arguments.
        num_warps, num_stages: how it is launched.
        pairs: in one iteration of its inner loop.
        float32: tensors that are float32 whatever `dtype` is.
    """

    name: str
    function: Any
    dtype: str
    absent: tuple[str, ...]
    constants: dict[str, Any]
    num_warps: int
    num_stages: int
    pairs: int
    float32: tuple[str, ...] = ()

    def compiled(self) -> CompiledKernel:
        """Compile for sm_90, with last strides of 1, and pointers and other strides that are multiples of 16."""
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
            if signature[name].startswith("*") or name == "stride" or name[-2:] in ("_b", "_h", "_t", "_s"):
                attributes[(index,)] = [["tt.divisibility", 16]]
        source = ASTSource(fn=self.function, signature=signature, constexprs=constants, attrs=attributes)
        options = {"num_warps": self.num_warps, "num_stages": self.num_stages}
        return triton.compile(source, target=TARGET, options=options)


def pointwise(name: str, activation: str, row_stats: bool, all_options: bool) -> Kernel:
    """Describe a kernel of pointwise attention, with the tiles that long sentences get."""
    config = LAUNCH_CONFIGS[name]["dropout" if all_options else "long"]
    constants = {
        "D": 64, "BLOCK_D": 64, "ACTIVATION": activation, "CAUSAL": all_options, "ROW_STATS": row_stats,
        "DROPOUT": all_options, "BLOCK_T": config.BLOCK_T, "BLOCK_S": config.BLOCK_S,
    }  # fmt: skip
    absent = (() if all_options else OPTIONAL) + (() if row_stats else ROW_STATS)
    title = f"{activation}, {name}" + (", row stats" if row_stats else "") + (", all options" if all_options else "")
    pairs = config.BLOCK_T * config.BLOCK_S
    return Kernel(title, POINTWISE[name], "bf16", absent, constants, config.num_warps, config.num_stages, pairs)


def inhibitor(name: str, value_dim: int, half: bool, all_options: bool) -> Kernel:
    """Describe a kernel of the Inhibitor; the signed one has values of twice the size."""
    function = getattr(inhibitor_triton_fp16 if half else inhibitor_triton_fp32, name)
    block = inhibitor_triton.block_size(name.partition("_")[0], 64, value_dim)
    constants = {
        "D": 64, "BLOCK_D": 64, "V_SIZE": value_dim, "BLOCK_V": value_dim, "CAUSAL": all_options,
        "DROPOUT": all_options, "BLOCK": block, "USE_PTX": True,
    }  # fmt: skip
    constants = {name: value for name, value in constants.items() if name in function.arg_names}
    title = f"inhibitor{'_signed' if value_dim > 64 else ''}, {name}"
    title += (", half" if half else "") + (", all options" if all_options else "")
    absent, pairs = () if all_options else OPTIONAL, block * (inhibitor_triton_fp16.RUN.value if half else 1)
    return Kernel(title, function, "fp16" if half else "fp32", absent, constants, 1, 1, pairs, ("Q", "Out"))


def kernels() -> list[Kernel]:
    """List all kernels: bare, with row stats, and with all options."""
    found = []
    for all_options in (False, True):
        for name in POINTWISE:
            found += [pointwise(name, "relu", row_stats, all_options) for row_stats in (False, True)]
            found.append(pointwise(name, "sigmoid", False, all_options))
        for name in ("forward", "backward_dq", "backward_dkdv"):
            found += [inhibitor(name, value_dim, False, all_options) for value_dim in (64, 128)]
        found += [inhibitor("forward", value_dim, True, all_options) for value_dim in (64, 128)]
    return found


def loops(disassembly: str) -> list[list[str]]:
    """Return the instructions of each loop, which ends with a branch to an earlier label."""
    instructions, labels, found = [], {}, []
    for line in disassembly.splitlines():
        if label := re.match(r"\s*(\.L\w+):", line):
            labels[label[1]] = len(instructions)
        elif instruction := re.match(r"\s*/\*[0-9a-f]+\*/\s+(.*?);", line):
            instructions.append(instruction[1])
    for end, instruction in enumerate(instructions):
        target = re.search(r"BRA\b.*`\((\.L\w+)\)", instruction)
        if target and labels.get(target[1], end) < end:
            found.append(instructions[labels[target[1]] : end + 1])
    return found


def count(kernel: Kernel) -> dict[str, float]:
    """Count the instructions in a kernel's inner loop, of a warp per 32 pairs, and its registers and spilled bytes."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(kernel.compiled().asm["cubin"])
        file.flush()
        code = subprocess.run([TOOLS / "nvdisasm", "-c", file.name], capture_output=True, text=True, check=True).stdout
        usage = subprocess.run([TOOLS / "cuobjdump", "-res-usage", file.name], capture_output=True, text=True).stdout
    found = loops(code)
    # Of two loops with matrix products, the longer one handles the diagonal of a causal mask.
    with_products = [loop for loop in found if any("MMA" in instruction for instruction in loop)]
    inner = min(with_products, key=len) if with_products else max(found, key=len)
    counts: collections.Counter[str] = collections.Counter()
    for instruction in inner:
        operation = re.sub(r"^@!?U?P\w+\s+", "", instruction).split()[0]  # without its predicate
        counts.update(kind for kind, pattern in INSTRUCTION_KINDS.items() if pattern.match(operation))
    threads = 32 * kernel.num_warps
    return {
        "instructions": len(inner) * threads / kernel.pairs,
        **{kind: counts[kind] * threads / kernel.pairs for kind in INSTRUCTION_KINDS},
        "registers": int(re.search(r"REG:(\d+)", usage)[1]),
        "spilled bytes": int(re.search(r"STACK:(\d+)", usage)[1]),
    }


def main() -> None:
    """Count and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="REGEX", help="count only kernels whose names match")
    pattern = re.compile(parser.parse_args().only)
    header_printed = False
    for kernel in kernels():
        if not pattern.search(kernel.name):
            continue
        counts = count(kernel)
        if not header_printed:
            print("| kernel | " + " | ".join(counts) + " |\n" + "|---" * (len(counts) + 1) + "|")
            header_printed = True
        print(f"| {kernel.name} | " + " | ".join(f"{value:.3g}" for value in counts.values()) + " |", flush=True)
    print_origin()


if __name__ == "__main__":
    with exit_on_user_error():
        main()
