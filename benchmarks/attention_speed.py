"""Time and peak memory of every mechanism relative to PyTorch's fused softmax, interleaved in one process.

    python benchmarks/attention_speed.py --lengths 128 512 1024 2048

A round runs every system once, so that what slows the machine slows all of them; reported are medians over rounds of
the paired ratios to `scaled_dot_product_attention` (the system "softmax"; --baseline names another). Lower is better.
Time includes what a mechanism does to the concatenated heads (ReLA's norm). "explicit" is softmax computed as the other
mechanisms are: scores, weights, product. Runs on a GPU where there is one.
"""

import argparse
import statistics
import sys
from collections.abc import Callable

import torch
from timing import median_interval, peak_bytes, seconds
from torch import Tensor

from relumt.attention import MECHANISMS, AttentionMask, Mechanism, Need
from relumt.errors import UserError, exit_on_user_error

DIRECTIONS = ("forward", "forward + backward")
OTHER_WAYS = {
    "softmax, explicit": ("softmax", {}, Need.WEIGHTS),
    "inhibitor, cdist": ("inhibitor", {"implementation": "cdist"}, Need.NOTHING),
    "inhibitor, naive": ("inhibitor", {"implementation": "naive"}, Need.NOTHING),
}
"""Other ways to the same result: system → mechanism, its options, what is wanted of it."""

SYSTEMS = {name: (name, {}, Need.NOTHING) for name in MECHANISMS} | OTHER_WAYS
PAIRWISE = "inhibitor, naive"
"""Holds tensors of T·S·D."""


def forward(mechanism: Mechanism, need: Need, mask: AttentionMask, inputs: list[Tensor]) -> Tensor:
    """The concatenated heads, [T, B, E], before the output projection."""
    return mechanism.postprocess_heads(mechanism(*inputs, mask, need).output.permute(2, 0, 1, 3).flatten(2))


def works(system: str, args: argparse.Namespace, n: int) -> dict[str, Callable[[], None]]:
    """What is timed of `system` at length n: its forward pass, and both passes."""
    name, options, need = SYSTEMS[system]
    device = "cuda" if torch.cuda.is_available() else "cpu"
    mechanism = MECHANISMS[name](args.heads, args.head_dim, **options).to(device)
    shape = (args.batch, args.heads, n, args.head_dim)
    seeded = torch.Generator().manual_seed(1)
    dtype = getattr(torch, args.dtype)
    inputs = [torch.randn(shape, generator=seeded).to(device, dtype).requires_grad_() for _ in range(3)]
    mask = AttentionMask(is_causal=args.causal)

    @torch.no_grad()
    def forward_only() -> None:
        forward(mechanism, need, mask, inputs)

    def both() -> None:
        forward(mechanism, need, mask, inputs).sum().backward()
        for tensor in inputs:
            tensor.grad = None

    return dict(zip(DIRECTIONS, (forward_only, both), strict=True))


def measure(args: argparse.Namespace, n: int) -> dict[tuple[str, str], str]:
    """Direction and system → the cell of the table for length n."""
    cells = {}
    systems = [system for system in args.systems if system != PAIRWISE or n <= args.longest_naive]
    prepared = {system: works(system, args, n) for system in systems}
    for direction in DIRECTIONS:
        memory = {system: peak_bytes(_warmed(prepared[system][direction])) for system in systems}
        times: dict[str, list[float]] = {system: [] for system in systems}
        for round_ in range(args.rounds):
            for system in systems if round_ % 2 else reversed(systems):
                times[system].append(seconds(prepared[system][direction]))
        print(f"n = {n}, {direction}: done", file=sys.stderr, flush=True)
        for system in systems:
            ratios = [a / b for a, b in zip(times[system], times[args.baseline], strict=True)]
            low, high = median_interval(ratios)
            share = memory[system] / memory[args.baseline]
            cells[direction, system] = f"{statistics.median(ratios):.2f} ({low:.2f}–{high:.2f}) · {share:.2f}"
        cells[direction, "time"] = f"{statistics.median(times[args.baseline]) * 1e3:.2f} ms"
    return cells


def _warmed(work: Callable[[], None]) -> Callable[[], None]:
    work()
    return work


def report(args: argparse.Namespace, cells: dict[int, dict[tuple[str, str], str]]) -> str:
    """Markdown tables, one a direction: systems × lengths."""
    lines = []
    for direction in DIRECTIONS:
        lines += [f"| {direction} | " + " | ".join(f"n = {n}" for n in cells) + " |", "|---" * (len(cells) + 1) + "|"]
        for system in args.systems:
            lines.append(f"| {system} | " + " | ".join(cells[n].get((direction, system), "") for n in cells) + " |")
        lines.append(f"| {args.baseline}'s time | " + " | ".join(cells[n][direction, "time"] for n in cells) + " |\n")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--systems", nargs="+", default=list(SYSTEMS), choices=SYSTEMS, metavar="SYSTEM")
    parser.add_argument("--baseline", default="softmax", choices=SYSTEMS, metavar="SYSTEM")
    parser.add_argument("--lengths", nargs="+", type=int, default=[128, 512, 1024, 2048])
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--head-dim", type=int, default=64)
    parser.add_argument("--dtype", default="float32", choices=["float32", "float16", "bfloat16"])
    parser.add_argument("--causal", action="store_true")
    parser.add_argument("--rounds", type=int, default=11, help="timed runs of each system (%(default)s)")
    parser.add_argument("--longest-naive", type=int, default=512, help=f"no {PAIRWISE} beyond it (%(default)s)")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    args = parser.parse_args()
    if args.baseline not in args.systems:
        raise UserError(f"--systems must name the baseline, {args.baseline}")
    torch.set_num_threads(args.threads)
    cells = {n: measure(args, n) for n in args.lengths}
    mask = "causal" if args.causal else "dense"
    print(f"B {args.batch}, H {args.heads}, D {args.head_dim}, {args.dtype}, {mask}; {args.rounds} rounds;")
    print(f"time / {args.baseline}'s, median (95 % interval) · peak memory / {args.baseline}'s\n")
    print(report(args, cells))


if __name__ == "__main__":
    with exit_on_user_error():
        main()
