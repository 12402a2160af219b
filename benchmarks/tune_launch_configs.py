"""Find the fastest launch configurations of the pointwise Triton kernels on the GPU at hand.

    python benchmarks/tune_launch_configs.py --length 2048
    python benchmarks/tune_launch_configs.py --batch 64 --heads 4 --length 64 --causal

Every candidate replaces a configuration of relumt/attention/kernels/pointwise_launch_configs.py, one kernel at a time.
Candidates that do not fit the GPU are left out. For each kernel the table shows the five fastest and the current one,
with the median time of ReLU attention's forward or backward pass relative to the current one's (to the fastest's where
the current one does not fit).
"""

import argparse
import itertools
import sys
from collections.abc import Callable

import torch
from timing import print_origin

from relumt.attention import MECHANISMS, AttentionMask, Need
from relumt.attention.kernels import dispatch
from relumt.attention.kernels.pointwise_launch_configs import LAUNCH_CONFIGS, LaunchConfig, call_kind
from relumt.errors import UserError, exit_on_user_error
from relumt.kernel_timing import kernel_seconds

TILE_SIZES, WARPS, STAGES = (32, 64, 128), (4, 8), (2, 3)
CANDIDATES = [
    LaunchConfig(*choice)
    for choice in itertools.product(TILE_SIZES, TILE_SIZES, WARPS, STAGES)
    if max(choice[:2]) > min(TILE_SIZES)
]


def kernel_calls(args: argparse.Namespace) -> tuple[dict[str, Callable[[], object]], str]:
    """Return a function per kernel that runs a pass with it, and the kind of call that `args` describe."""
    shape = (args.batch, args.heads, args.length, args.head_dim)
    dtype = getattr(torch, args.dtype)
    inputs = [torch.randn(shape, device="cuda", dtype=dtype).requires_grad_() for _ in range(3)]
    grad, mask = torch.randn(shape, device="cuda", dtype=dtype), AttentionMask(None, args.causal)
    need = Need.ROW_STATS if args.row_stats else Need.NOTHING
    mechanism = MECHANISMS["relu"](args.heads, args.head_dim, args.dropout).cuda().train()
    output = mechanism(*inputs, mask, need).output

    def backward() -> None:
        torch.autograd.grad(output, inputs, grad, retain_graph=True)

    if dispatch.select_pointwise_kernel(*inputs, mask, need_weights=False, trains_norm=False) is None:
        raise UserError("the Triton kernels cannot serve this call; see the reason in the log")
    calls = {"forward": lambda: mechanism(*inputs, mask, need), "backward_dq": backward, "backward_dkdv": backward}
    return calls, call_kind(inputs[0], args.dropout)


def time_candidates(
    kernel: str, kind: str, run: Callable[[], object], candidates: list[LaunchConfig]
) -> dict[LaunchConfig, float]:
    """Return the seconds of a pass with each candidate that fits."""
    current, times = LAUNCH_CONFIGS[kernel][kind], {}
    for candidate in candidates:
        LAUNCH_CONFIGS[kernel][kind] = candidate
        try:
            times[candidate] = kernel_seconds(run)
        except Exception as error:  # the type of the error for what does not fit depends on Triton's version
            print(f"{kernel}: {candidate}: {str(error).splitlines()[0][:100]}", file=sys.stderr)
        finally:
            LAUNCH_CONFIGS[kernel][kind] = current
    return times


def main() -> None:
    """Time the candidates and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--length", type=int, default=2048)
    parser.add_argument("--head-dim", type=int, default=64)
    parser.add_argument("--dtype", default="bfloat16", choices=["float32", "float16", "bfloat16"])
    parser.add_argument("--causal", action="store_true")
    parser.add_argument("--row-stats", action="store_true", help="compute the row sums of the regularizer, too")
    parser.add_argument("--dropout", type=float, default=0.0)
    args = parser.parse_args()
    if not torch.cuda.is_available():
        raise UserError("there is no GPU; benchmarks/count_instructions.py counts instructions without one")
    calls, kind = kernel_calls(args)
    print(f"| kernel ({kind}) | BLOCK_T | BLOCK_S | warps | stages | time / current |\n|---|---|---|---|---|---|")
    for kernel, run in calls.items():
        current = LAUNCH_CONFIGS[kernel][kind]
        times = time_candidates(kernel, kind, run, [current, *(config for config in CANDIDATES if config != current)])
        if not times:
            continue  # the reasons have been printed
        reference = times.get(current, min(times.values()))
        for config in [*sorted(times, key=times.__getitem__)[:5], *({current} & set(times))]:
            cells = (kernel, *config, f"{times[config] / reference:.3f}")
            print("| " + " | ".join(map(str, cells)) + " |")
    print_origin()


if __name__ == "__main__":
    with exit_on_user_error():
        main()
