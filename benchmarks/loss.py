"""Measure time and memory of the label-smoothed loss with the output projection: relumt's against fairseq's.

    python benchmarks/loss.py --positions 4096 --size 512 --types 10000 32000

Both compute value and gradients for the same features [positions, size], in turn. Reported are the median of fairseq's
time over relumt's with a 95% interval, and the largest amount of memory that tensors held beyond features, weight and
targets. Uses a GPU if there is one. With --no-timing nothing is timed, so that fp16 can be measured on a CPU, too.
"""

import argparse
from collections.abc import Callable

import torch
import torch.nn.functional as F
from fairseq.criterions.label_smoothed_cross_entropy import label_smoothed_nll_loss
from timing import alternating_times, peak_bytes, print_origin, relative_speeds
from torch import Tensor

from relumt.arguments import ArgumentParser, positive_integer
from relumt.errors import exit_on_user_error
from relumt.papers.speeds import format_ratio
from relumt.plugin.criterions.projected_cross_entropy import projected_cross_entropy

PAD = 1
SMOOTHING = 0.1
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def fairseq_loss(features: Tensor, weight: Tensor, target: Tensor) -> Tensor:
    """Return the loss as fairseq's Transformer and criterion compute it, a scalar."""
    log_p = F.log_softmax(F.linear(features, weight), dim=-1, dtype=torch.float32)
    loss: Tensor = label_smoothed_nll_loss(log_p, target, SMOOTHING, ignore_index=PAD)[0]
    return loss


def relumt_loss(features: Tensor, weight: Tensor, target: Tensor) -> Tensor:
    """Return the fused loss, a scalar."""
    return projected_cross_entropy(features, weight, target, SMOOTHING, PAD).loss


def make_steps(positions: int, size: int, types: int, dtype: torch.dtype) -> dict[str, Callable[[], None]]:
    """Return name → a function that computes value and gradients; a tenth of the positions is padding."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    features = torch.randn(positions, size, device=device).to(dtype).requires_grad_()
    weight = torch.randn(types, size, device=device).mul_(size**-0.5).to(dtype).requires_grad_()
    target = torch.randint(2, types, (positions,), device=device)
    target[::10] = PAD

    def step(loss: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
        loss(features, weight, target).backward()
        features.grad = weight.grad = None  # at the end: the next step would seem to need less memory by their size

    return {"fairseq": lambda: step(fairseq_loss), "relumt": lambda: step(relumt_loss)}


def main() -> None:
    """Measure and print a table."""
    parser = ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--positions", type=positive_integer, default=4096, help="(default: %(default)s)")
    parser.add_argument(
        "--size", type=positive_integer, default=512, help="size of the features (default: %(default)s)"
    )
    parser.add_argument(
        "--types", type=positive_integer, nargs="+", default=[10_000, 32_000], help="(default: 10000 32000)"
    )
    parser.add_argument("--dtype", choices=DTYPES, default="fp32")
    parser.add_argument("--repeats", type=positive_integer, default=10, help="timed repeats (default: %(default)s)")
    parser.add_argument("--threads", type=positive_integer, default=torch.get_num_threads())
    parser.add_argument("--no-timing", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    print("| types | speed relative to fairseq's (95% interval) | MB, fairseq | MB, relumt |\n|---|---|---|---|")
    for types in args.types:
        steps = make_steps(args.positions, args.size, types, DTYPES[args.dtype])
        megabytes = " | ".join(f"{peak_bytes(step) / 1e6:.0f}" for step in steps.values())
        speed = "not measured"
        if not args.no_timing:
            speed = format_ratio(relative_speeds("fairseq", alternating_times(steps, args.repeats))["relumt"])
        print(f"| {types:,} | {speed} | {megabytes} |", flush=True)
    print_origin()


if __name__ == "__main__":
    with exit_on_user_error():
        main()
