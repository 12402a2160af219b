"""Count the machine instructions per pair in the Triton kernels, for GPUs that need not be present.

    python benchmarks/count_instructions.py
    python benchmarks/count_instructions.py --arch sm_80 sm_120 --only wide --misfits

Each kernel is compiled as it is launched on such a GPU, for every kind of call, and its inner loop is disassembled. The
table shows the instructions of a warp per 32 pairs of a query and a key: all of them, floating-point ones, special
functions (logarithms, at an eighth of the rate), and exchanges between threads; then registers and spilled bytes per
thread (0 for a kernel that fits), and shared memory per program beside the most that the GPU grants, in KiB. These are
not times: waiting is not counted. They show whether a change saved work.
"""

import argparse
import collections
import re

import triton
from compiled_kernels import SHARED_MEMORY, Binary, Kernel, kernels
from timing import print_origin

from relumt.arguments import ArgumentParser
from relumt.errors import exit_on_user_error

INSTRUCTION_KINDS = {
    "float": re.compile(r"FADD|FMUL|FFMA|FMNMX|FSEL|FSETP|FSET|HADD2|HFMA2|HMNMX2"),
    "special": re.compile("MUFU"),
    "exchange": re.compile("SHFL"),
}


def inner_loop(loops: list[list[str]]) -> list[str]:
    """Return the loop that handles most pairs."""
    # Of two loops with matrix products, the longer one handles the diagonal of a causal mask.
    with_products = [loop for loop in loops if any("MMA" in instruction for instruction in loop)]
    return min(with_products, key=len) if with_products else max(loops, key=len)


def count(kernel: Kernel, binary: Binary) -> dict[str, str]:
    """Return the columns of the table."""
    loop = inner_loop(binary.loops())
    counts: collections.Counter[str] = collections.Counter()
    for instruction in loop:
        operation = re.sub(r"^@!?U?P\w+\s+", "", instruction).split()[0]  # without its predicate
        counts.update(kind for kind, pattern in INSTRUCTION_KINDS.items() if pattern.match(operation))
    warps_per_32_pairs = 32 * kernel.num_warps / kernel.pairs
    return {
        "instructions": f"{len(loop) * warps_per_32_pairs:.3g}",
        **{kind: f"{counts[kind] * warps_per_32_pairs:.3g}" for kind in INSTRUCTION_KINDS},
        "registers": str(binary.registers),
        "spilled bytes": str(binary.spilled_bytes),
        "shared memory": f"{binary.shared_memory:.3g} of {SHARED_MEMORY[kernel.capability]}",
    }


def main() -> None:
    """Compile, count and print the table."""
    parser = ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    architectures = [f"sm_{capability}" for capability in SHARED_MEMORY]
    parser.add_argument("--arch", nargs="+", default=["sm_90"], choices=architectures, help="GPUs to compile for")
    parser.add_argument("--only", default="", metavar="REGEX", help="count only kernels whose names match")
    parser.add_argument("--misfits", action="store_true", help="print only kernels that exceed registers or memory")
    args = parser.parse_args()
    pattern = re.compile(args.only)
    header_printed, num_compiled = False, 0
    for architecture in args.arch:
        for kernel in kernels(int(architecture.removeprefix("sm_"))):
            if not pattern.search(kernel.name):
                continue
            binary = kernel.compile()
            num_compiled += 1
            if args.misfits and not binary.spilled_bytes and binary.shared_memory <= SHARED_MEMORY[kernel.capability]:
                continue
            columns = count(kernel, binary)
            if not header_printed:
                print("| kernel | GPU | " + " | ".join(columns) + " |\n" + "|---" * (len(columns) + 2) + "|")
                header_printed = True
            print(f"| {kernel.name} | {architecture} | " + " | ".join(columns.values()) + " |", flush=True)
    print_origin()
    print(f"{num_compiled} kernels compiled with Triton {triton.__version__}")


if __name__ == "__main__":
    with exit_on_user_error():
        main()
