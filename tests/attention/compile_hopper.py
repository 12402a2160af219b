"""Compile the kernels for Hopper without a GPU, and print a JSON line about the machine code of each."""

import itertools
import json

import torch
from machine_code import compiling_for, find_loops

from relumt.attention.kernels import key_bounds
from relumt.attention.kernels.hopper import launch
from relumt.attention.kernels.hopper.selection import HEAD_DIMS

PRODUCTS = {"forward": (1, 1), "backward_dq": (1, 1), "backward_dq_stats": (2, 1), "backward_dkdv": (2, 2)}
"""Products of a loop over blocks that sum over D, and those that sum over the block."""
OPTIONS = ["", "padded", "causal", "dropout", "row_stats", "causal dropout", "causal row_stats dropout"]
POWERS = ["relu2", "relu2 dropout", "relu8 bias sums padded", "relu8 bias sums causal dropout"]
"""Options of bfloat16 alone; "sums" are those of w without those of w log w."""
CALLS = [
    *itertools.product((torch.bfloat16, torch.float16), HEAD_DIMS, OPTIONS),
    *itertools.product((torch.bfloat16,), HEAD_DIMS, POWERS),
]


def product_loops(binary: bytes) -> list[list[str]]:
    """Return the instructions of the innermost loops with products."""
    instructions, loops = find_loops(binary)
    loops = [loop for loop in loops if any("HGMMA" in x for x in instructions[loop])]
    inner = [a for a in loops if not any(b != a and a.start <= b.start and b.stop <= a.stop for b in loops)]
    return [instructions[loop] for loop in inner]


def report(kernel, compiled, options, config) -> None:
    """Print what the tests check; of several loops, the shortest are those of the warpgroups over blocks."""
    over_dims, over_block = PRODUCTS[kernel.__name__]
    num = (over_dims * config.D + over_block * config.block) // 16  # a wgmma sums over 16
    found = [x for x in product_loops(compiled.asm["cubin"]) if sum("HGMMA" in i for i in x) == num]
    found = sorted(found, key=len)[: config.num_warpgroups]
    result = {
        "kernel": kernel.__name__,
        "head_dim": config.D,
        "options": options,
        "loops": len(found),
        "instructions": len(found[0]),
        "spills": sum("LDL" in x or "STL" in x for loop in found for x in loop),
        "serialized": any(all("gsb0" in x for x in loop if "HGMMA" in x) for loop in found),
        "shared": compiled.metadata.shared,
    }
    print(json.dumps(result), flush=True)


def compile_call(dtype: torch.dtype, D: int, options: str) -> None:
    """Compile the kernels of both passes."""
    q, k, v, grad = (torch.empty(16, 2048, 8, D, dtype=dtype, device="meta").transpose(1, 2) for _ in range(4))
    bias = torch.empty(16, 1, device="meta") if "bias" in options else None
    factor = torch.empty(16, 2048 if "causal" in options and bias is None else 1, device="meta")
    key_mask = torch.empty(16, 2048, dtype=torch.bool, device="meta") if "padded" in options else None
    dropout_p = 0.1 if "dropout" in options else 0.0
    seed = torch.empty(1, dtype=torch.int64, device="meta") if dropout_p else None
    row_grad = torch.empty(16, 8, 2048, device="meta")
    row_sums = 2 * ("row_stats" in options) + ("sums" in options)
    row_grads = [row_grad] * row_sums + [None] * (2 - row_sums)
    bounds = key_bounds.key_bounds(key_mask)
    activation = options.split()[0] if options.startswith("relu") else "relu"
    call = (q, k, v, factor, bias, key_mask, bounds, seed, activation, "causal" in options, dropout_p)
    kept = launch.run_forward(*call, row_sums, dtype)[3]
    launch.run_backward(grad, *row_grads, *call, kept)


def main() -> None:
    """Compile all of them."""
    for dtype, D, options in CALLS:

        def visit(kernel, arguments, compiled, dtype=dtype, options=options):
            if config := arguments.get("CONFIG"):
                report(kernel, compiled, f"{str(dtype).removeprefix('torch.')} {options}".strip(), config)

        with compiling_for(90, visit):
            compile_call(dtype, D, options)


if __name__ == "__main__":
    main()
