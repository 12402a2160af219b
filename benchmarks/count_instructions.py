"""What the Triton kernels do a pair, counted in their machine code, for a GPU that need not be there.

    python benchmarks/count_instructions.py

Each kernel is compiled for sm_90 (H100, H200) as it is called for heads of 64, and its inner loop disassembled.
Printed are the instructions of a warp for 32 pairs of a query and a key: all, those of floating point, of special
functions (logarithms, at an eighth of the rate), and exchanges between threads; then registers, and bytes of a thread's
memory, which a kernel that fits has none of. Not a time: what the loop waits for is not counted. It says whether a
change saved work.
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
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, CompiledKernel

from relumt.attention.kernels import inhibitor_float32, inhibitor_packed, inhibitor_triton, pointwise_triton
from relumt.attention.kernels.blocks import CHOSEN
from relumt.errors import exit_on_user_error

TARGET = GPUTarget("cuda", 90, 32)
TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
FLOAT32 = {"Factor", "Bias", "Total", "SLogS", "OfTotal", "OfSLogS", "Shift", "OfQueries"}
OPTIONAL = ("Keys", "Bounds", "Bias")
STATISTICS = ("Total", "SLogS", "OfTotal", "OfSLogS")
POINTWISE = {"forward": "forward", "backward_of_queries": "of_queries", "backward_of_keys": "of_keys"}
INHIBITOR = {"values": "values", "gradients_of_queries": "gradients", "gradients_of_keys": "gradients"}
"""By kernel, what its blocks are called."""
KINDS = {
    "float": re.compile(r"FADD|FMUL|FFMA|FMNMX|FSEL|FSETP|FSET|HADD2|HFMA2|HMNMX2"),
    "special": re.compile("MUFU"),
    "exchange": re.compile("SHFL"),
}


@dataclass(frozen=True)
class Kernel:
    """One kernel as it is called: of which type, without which arguments, with which constants; pairs in a block."""

    name: str
    function: Any
    type_: str
    absent: tuple[str, ...]
    constants: dict[str, Any]
    warps: int
    stages: int
    pairs: int
    held: tuple[str, ...] = ()
    """Tensors that are of float32 in kernels of another type."""

    def compiled(self) -> CompiledKernel:
        """The kernel for sm_90, its last strides 1 and its pointers and other strides multiples of 16."""
        signature, constants, known = {}, {}, {}
        for place, name in enumerate(self.function.arg_names):
            if name in self.absent or name in self.constants or name.endswith("_d"):
                signature[name] = "constexpr"
                constants[(place,)] = None if name in self.absent else self.constants.get(name, 1)
            elif name in ("dropout", "rate"):
                signature[name] = "fp32"
            elif name in ("H", "T", "S", "seed", "part", "stride") or "_" in name:
                signature[name] = "i32"
            else:
                of_type = {"Keys": "u8", "Bounds": "i32"} | dict.fromkeys((*FLOAT32, *self.held), "fp32")
                signature[name] = f"*{of_type.get(name, self.type_)}"
            if signature[name].startswith("*") or name == "stride" or name[-2:] in ("_b", "_h", "_t", "_s"):
                known[(place,)] = [["tt.divisibility", 16]]
        known = {place: of for place, of in known.items() if place not in constants}
        source = ASTSource(fn=self.function, signature=signature, constexprs=constants, attrs=known)
        return triton.compile(source, target=TARGET, options={"num_warps": self.warps, "num_stages": self.stages})


def pointwise(name: str, of: str, activation: str, statistics: bool, optional: bool) -> Kernel:
    """A kernel of `pointwise_triton`, in the blocks that long sentences get."""
    blocks = CHOSEN[of]["dropout" if optional else "long"]
    constants = {
        "D": 64, "BLOCK_D": 64, "ACTIVATION": activation, "CAUSAL": optional, "STATISTICS": statistics,
        "DROPOUT": optional, "BLOCK_T": blocks.queries, "BLOCK_S": blocks.keys,
    }  # fmt: skip
    absent = (() if optional else OPTIONAL) + (() if statistics else STATISTICS)
    function, pairs = getattr(pointwise_triton, name), blocks.queries * blocks.keys
    described = f"{activation}, {name}" + (", statistics" if statistics else "") + (", all options" if optional else "")
    return Kernel(described, function, "bf16", absent, constants, blocks.warps, blocks.stages, pairs)


def inhibitor(name: str, of: str, columns: int, half: bool, optional: bool) -> Kernel:
    """A kernel of the Inhibitor, for values of so many columns: signed has twice as many."""
    module = inhibitor_packed if half else inhibitor_float32
    block = inhibitor_triton.block_of(of, 64, columns)
    constants = {
        "D": 64, "BLOCK_D": 64, "V_SIZE": columns, "BLOCK_V": columns, "CAUSAL": optional, "DROPOUT": optional,
        "BLOCK": block, "PTX": True,
    }  # fmt: skip
    function, run = getattr(module, name), inhibitor_packed.RUN.value if half else 1
    signed = "_signed" if columns > 64 else ""
    described = f"inhibitor{signed}, {name}" + (", half" if half else "") + (", all options" if optional else "")
    constants = {name: value for name, value in constants.items() if name in function.arg_names}
    absent = () if optional else OPTIONAL
    return Kernel(described, function, "fp16" if half else "fp32", absent, constants, 1, 1, block * run, ("Q", "Mixed"))


def kernels() -> list[Kernel]:
    """All there are: bare, with statistics, and with everything that is optional."""
    found = []
    for optional in (False, True):
        for name, of in POINTWISE.items():
            found += [pointwise(name, of, "relu", statistics, optional) for statistics in (False, True)]
            found.append(pointwise(name, of, "sigmoid", False, optional))
        for name, of in INHIBITOR.items():
            found += [inhibitor(name, of, columns, False, optional) for columns in (64, 128)]
        found += [inhibitor("values", "values", columns, True, optional) for columns in (64, 128)]
    return found


def loops(machine_code: str) -> list[list[str]]:
    """The instructions of each loop of disassembled code."""
    lines, labels, found = [], {}, []
    for line in machine_code.splitlines():
        if label := re.match(r"\s*(\.L\w+):", line):
            labels[label[1]] = len(lines)
        elif instruction := re.match(r"\s*/\*[0-9a-f]+\*/\s+(.*?);", line):
            lines.append(instruction[1])
    for end, line in enumerate(lines):
        target = re.search(r"BRA\b.*`\((\.L\w+)\)", line)
        if target and labels.get(target[1], end) < end:
            found.append(lines[labels[target[1]] : end + 1])
    return found


def counted(kernel: Kernel) -> dict[str, float]:
    """What one kernel's loop does: instructions of a warp for 32 pairs, by kind; registers and spilled bytes."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(kernel.compiled().asm["cubin"])
        file.flush()
        code = subprocess.run([TOOLS / "nvdisasm", "-c", file.name], capture_output=True, text=True, check=True).stdout
        usage = subprocess.run([TOOLS / "cuobjdump", "-res-usage", file.name], capture_output=True, text=True).stdout
    found = loops(code)
    with_products = [loop for loop in found if any("MMA" in line for line in loop)]
    # of two loops with products the longer one is that of the diagonal
    inner = min(with_products, key=len) if with_products else max(found, key=len)
    kinds = collections.Counter()
    for line in inner:
        operation = re.sub(r"^@!?U?P\w+\s+", "", line).split()[0]
        kinds.update(name for name, pattern in KINDS.items() if pattern.match(operation))
    threads = 32 * kernel.warps
    return {
        "instructions": len(inner) * threads / kernel.pairs,
        **{name: kinds[name] * threads / kernel.pairs for name in KINDS},
        "registers": int(re.search(r"REG:(\d+)", usage)[1]),
        "spilled bytes": int(re.search(r"STACK:(\d+)", usage)[1]),
    }


def main() -> None:
    """Count and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="REGEX", help="kernels whose names match this")
    wanted = re.compile(parser.parse_args().only)
    header = None
    for kernel in kernels():
        if not wanted.search(kernel.name):
            continue
        of = counted(kernel)
        if header is None:
            header = ["kernel", *of]
            print("| " + " | ".join(header) + " |\n" + "|---" * len(header) + "|")
        print(f"| {kernel.name} | " + " | ".join(f"{value:.3g}" for value in of.values()) + " |", flush=True)


if __name__ == "__main__":
    with exit_on_user_error():
        main()
