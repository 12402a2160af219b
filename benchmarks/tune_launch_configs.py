"""Which blocks serve the kernels of pointwise weights best on the GPU at hand.

    python benchmarks/tune_launch_configs.py --length 2048
    python benchmarks/tune_launch_configs.py --batch 64 --heads 4 --length 64 --causal

Every candidate stands in for the choice of relumt/attention/kernels/blocks.py, one kernel at a time; what does not fit
is left out. Printed are, of each kernel, the fastest five and today's choice, with the median time of ReLU attention's
pass in that direction relative to today's, or to the fastest's where today's does not fit.
"""

import argparse
import itertools
import sys

import torch
from timing import seconds_of_kernels

from relumt.attention import MECHANISMS, AttentionMask, Need
from relumt.attention.kernels import dispatch
from relumt.attention.kernels.blocks import CHOSEN, Blocks, kind
from relumt.errors import UserError, exit_on_user_error

SIZES, WARPS, STAGES = (32, 64, 128), (4, 8), (2, 3)
CANDIDATES = [Blocks(*choice) for choice in itertools.product(SIZES, SIZES, WARPS, STAGES) if max(choice[:2]) > 32]


def passes(args: argparse.Namespace) -> tuple[dict, str]:
    """What runs a pass in each direction, and the kind of call that it is."""
    shape = (args.batch, args.heads, args.length, args.head_dim)
    dtype = getattr(torch, args.dtype)
    inputs = [torch.randn(shape, device="cuda", dtype=dtype).requires_grad_() for _ in range(3)]
    grad, mask = torch.randn(shape, device="cuda", dtype=dtype), AttentionMask(None, args.causal)
    need = Need.ROW_STATS if args.statistics else Need.NOTHING
    mechanism = MECHANISMS["relu"](args.heads, args.head_dim, args.dropout).cuda().train()
    mixed = mechanism(*inputs, mask, need).output

    def backward() -> None:
        torch.autograd.grad(mixed, inputs, grad, retain_graph=True)

    if dispatch.pointwise(*inputs, mask, wants_weights=False, trains_norm=False) is None:
        raise UserError("the kernels do not take such a call; the log says why")
    directions = {"forward": lambda: mechanism(*inputs, mask, need), "of_queries": backward, "of_keys": backward}
    return directions, kind(inputs[0], args.dropout > 0)


def timed(kernel: str, of: str, run, candidates: list[Blocks]) -> dict[Blocks, float]:
    """Seconds of a pass with each candidate that fits."""
    today, times = CHOSEN[kernel][of], {}
    for candidate in candidates:
        CHOSEN[kernel][of] = candidate
        try:
            times[candidate] = seconds_of_kernels(run)
        except Exception as error:  # what does not fit is of many types, by version
            print(f"{kernel}: {candidate}: {str(error).splitlines()[0][:100]}", file=sys.stderr)
        finally:
            CHOSEN[kernel][of] = today
    return times


def main() -> None:
    """Time and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--length", type=int, default=2048)
    parser.add_argument("--head-dim", type=int, default=64)
    parser.add_argument("--dtype", default="bfloat16", choices=["float32", "float16", "bfloat16"])
    parser.add_argument("--causal", action="store_true")
    parser.add_argument("--statistics", action="store_true")
    parser.add_argument("--dropout", type=float, default=0.0)
    args = parser.parse_args()
    if not torch.cuda.is_available():
        raise UserError("there is no GPU; benchmarks/count_instructions.py counts instructions without one")
    directions, of = passes(args)
    print(f"| kernel ({of}) | queries | keys | warps | stages | time / today's |\n|---|---|---|---|---|---|")
    for kernel, run in directions.items():
        today = CHOSEN[kernel][of]
        times = timed(kernel, of, run, [today, *(blocks for blocks in CANDIDATES if blocks != today)])
        if not times:
            continue  # each has said why
        of_today = times.get(today, min(times.values()))
        for blocks in [*sorted(times, key=times.get)[:5], *({today} & set(times))]:
            relative = f"{times[blocks] / of_today:.3f}"
            cells = (kernel, blocks.queries, blocks.keys, blocks.warps, blocks.stages, relative)
            print("| " + " | ".join(map(str, cells)) + " |")


if __name__ == "__main__":
    with exit_on_user_error():
        main()
