"""Measure time and peak memory of every mechanism relative to PyTorch's fused softmax, alternating in one process.

    python benchmarks/attention_speed.py --lengths 128 512 1024 2048
    python benchmarks/attention_speed.py --short-sentences --threads 1

Each round runs every system once, so that what slows the machine slows all of them. Reported are medians over rounds of
the paired ratios to the baseline, by default `scaled_dot_product_attention` (the system "softmax"). Lower is better.
Times include what a mechanism does to the concatenated heads (ReLA's norm). "softmax, explicit" is computed like the
other mechanisms: scores, weights, product. Uses a GPU if there is one. --short-sentences compares explicit with fused
softmax at about 4,200 tokens per batch, 4 heads of 64, and shows which one `dispatch.prefers_explicit_softmax` chooses.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from timing import peak_bytes, print_origin, seconds
from torch import Tensor

from relumt.arguments import ArgumentParser, positive_integer, whole_number
from relumt.attention import MECHANISMS, AttentionMask, Mechanism, Need
from relumt.attention.kernels import dispatch
from relumt.errors import UserError, exit_on_user_error
from relumt.papers.speeds import format_ratio, median_ratio
from relumt.plugin.cpu_products import select_fp32_backend

DIRECTIONS = ("forward", "forward + backward")
ALTERNATIVES = {
    "softmax, explicit": ("softmax", {}, Need.WEIGHTS),
    "inhibitor, cdist": ("inhibitor", {"implementation": "cdist"}, Need.NOTHING),
    "inhibitor, naive": ("inhibitor", {"implementation": "naive"}, Need.NOTHING),
}
"""Other implementations: system → mechanism, its options, what is needed besides the output."""

SYSTEMS = {name: (name, {}, Need.NOTHING) for name in MECHANISMS} | ALTERNATIVES
PAIRWISE = "inhibitor, naive"
"""The system with tensors of T·S·D elements, which limits its length."""


def forward(mechanism: Mechanism, need: Need, mask: AttentionMask, inputs: list[Tensor]) -> Tensor:
    """Return the concatenated heads, [T, B, E], as they go into the output projection."""
    output = mechanism(*inputs, mask, need).output
    return mechanism.postprocess_heads(output.permute(2, 0, 1, 3).flatten(2))  # [B, H, T, D] -> [T, B, E]


def passes(system: str, args: argparse.Namespace, n: int) -> dict[str, Callable[[], None]]:
    """Return the functions that are timed for `system` at length n, by direction."""
    name, options, need = SYSTEMS[system]
    device = "cuda" if torch.cuda.is_available() else "cpu"
    mechanism = MECHANISMS[name](args.heads, args.head_dim, **options).to(device)
    shape = (args.batch, args.heads, n, args.head_dim)
    generator = torch.Generator().manual_seed(1)
    dtype = getattr(torch, args.dtype)
    inputs = [torch.randn(shape, generator=generator).to(device, dtype).requires_grad_() for _ in range(3)]
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
    """Measure at length n; return (direction, system) → text of the table's cell."""
    cells = {}
    systems = [system for system in args.systems if system != PAIRWISE or n <= args.longest_naive]
    functions = {system: passes(system, args, n) for system in systems}
    for direction in DIRECTIONS:
        memory = {system: peak_bytes(_warmed_up(functions[system][direction])) for system in systems}
        times: dict[str, list[float]] = {system: [] for system in systems}
        for round_number in range(args.rounds):
            for system in systems if round_number % 2 else reversed(systems):
                times[system].append(seconds(functions[system][direction]))
        print(f"n = {n}, {direction}: done", file=sys.stderr, flush=True)
        for system in systems:
            ratios = [own / base for own, base in zip(times[system], times[args.baseline], strict=True)]
            memory_ratio = memory[system] / memory[args.baseline]
            cells[direction, system] = f"{format_ratio(median_ratio(ratios))} · {memory_ratio:.2f}"
        cells[direction, "time"] = f"{statistics.median(times[args.baseline]) * 1e3:.2f} ms"
    return cells


SENTENCE_LENGTHS = (8, 14, 28, 48, 64, 96, 128, 192, 256, 512)
BATCH_TOKENS, HEADS, HEAD_DIM = 4200, 4, 64
MASKS = {"none": (False, False), "padding": (True, False), "causal": (False, True), "padding, causal": (True, True)}
"""Name → whether there is padding (a sixth of the keys on average), and whether attention is causal."""


def softmax_passes(n: int, mask: AttentionMask, is_trained: bool) -> dict[str, Callable[[], None]]:
    """Return explicit and fused softmax of a batch of sentences of n tokens, in the layout that projections have."""
    B, mechanism = BATCH_TOKENS // n, MECHANISMS["softmax"](HEADS, HEAD_DIM)
    inputs = [torch.randn(n, B, HEADS * HEAD_DIM, requires_grad=is_trained) for _ in range(3)]
    grad = torch.randn(n, B, HEADS * HEAD_DIM)

    def explicit(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return Mechanism.attend(mechanism, q, k, v, mask, Need.NOTHING).output

    def fused(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        only_causal = mask.is_causal and mask.key_mask is None
        dense = None if only_causal else mask.to_dense(n, n)
        return F.scaled_dot_product_attention(q, k, v, dense, is_causal=only_causal)

    def run(attend: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
        heads = (x.view(n, B, HEADS, HEAD_DIM).permute(1, 2, 0, 3) for x in inputs)  # [T, B, E] -> [B, H, T, D]
        output = attend(*heads).permute(2, 0, 1, 3).flatten(2)  # [B, H, T, D] -> [T, B, E]
        if is_trained:
            torch.autograd.grad(output, inputs, grad)

    return {"explicit": lambda: run(explicit), "fused": lambda: run(fused)}


def compare_softmax(n: int, mask_name: str, is_trained: bool, rounds: int) -> str:
    """Return the CPU time of explicit relative to fused softmax: median and its interval."""
    has_padding, is_causal = MASKS[mask_name]
    lengths = torch.linspace(n * 2 // 3, n, BATCH_TOKENS // n)[:, None]
    passes = softmax_passes(n, AttentionMask(torch.arange(n) < lengths if has_padding else None, is_causal), is_trained)
    times: dict[str, list[float]] = {name: [] for name in passes}
    for round_number in range(-2, rounds):
        for name in list(passes) if round_number % 2 else reversed(list(passes)):
            start = time.process_time()
            passes[name]()
            if round_number >= 0:
                times[name].append(time.process_time() - start)
    ratios = [one / other for one, other in zip(times["explicit"], times["fused"], strict=True)]
    return format_ratio(median_ratio(ratios))


def print_softmax_tables(rounds: int) -> None:
    """Print a Markdown table for training and one for inference, lengths × masks."""
    for direction, is_trained in (("training", True), ("inference", False)):
        print(f"\n| {direction} | chosen | " + " | ".join(MASKS) + " |\n" + "|---" * (len(MASKS) + 2) + "|")
        for n in SENTENCE_LENGTHS:
            x = torch.empty(BATCH_TOKENS // n, HEADS, n, HEAD_DIM, requires_grad=is_trained)
            chosen = "explicit" if dispatch.prefers_explicit_softmax(x, x, x, 0.0) else "fused"
            cells = [compare_softmax(n, mask, is_trained, rounds) for mask in MASKS]
            print(f"| n = {n} | {chosen} | " + " | ".join(cells) + " |", flush=True)


def _warmed_up(work: Callable[[], None]) -> Callable[[], None]:
    work()
    return work


def markdown_tables(args: argparse.Namespace, cells: dict[int, dict[tuple[str, str], str]]) -> str:
    """Return a Markdown table per direction, systems × lengths."""
    lines = []
    for direction in DIRECTIONS:
        lines += [f"| {direction} | " + " | ".join(f"n = {n}" for n in cells) + " |", "|---" * (len(cells) + 1) + "|"]
        for system in args.systems:
            lines.append(f"| {system} | " + " | ".join(cells[n].get((direction, system), "") for n in cells) + " |")
        lines.append(f"| {args.baseline}'s time | " + " | ".join(cells[n][direction, "time"] for n in cells) + " |\n")
    return "\n".join(lines)


def main() -> None:
    """Measure, and print the tables."""
    parser = ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--systems", nargs="+", default=list(SYSTEMS), choices=SYSTEMS, metavar="SYSTEM")
    parser.add_argument("--baseline", default="softmax", choices=SYSTEMS, metavar="SYSTEM")
    parser.add_argument("--lengths", nargs="+", type=positive_integer, default=[128, 512, 1024, 2048])
    parser.add_argument("--batch", type=positive_integer, default=1)
    parser.add_argument("--heads", type=positive_integer, default=8)
    parser.add_argument("--head-dim", type=positive_integer, default=64)
    parser.add_argument("--dtype", default="float32", choices=["float32", "float16", "bfloat16"])
    parser.add_argument("--causal", action="store_true")
    parser.add_argument(
        "--rounds", type=positive_integer, default=11, help="timed runs per system (default: %(default)s)"
    )
    parser.add_argument(
        "--longest-naive", type=whole_number, default=512, help=f"for {PAIRWISE} (default: %(default)s)"
    )
    parser.add_argument("--short-sentences", action="store_true", help="compare explicit with fused softmax")
    parser.add_argument("--threads", type=positive_integer, default=torch.get_num_threads())
    args = parser.parse_args()
    select_fp32_backend()  # as in training
    if args.baseline not in args.systems:
        raise UserError(f"--systems must include the baseline, {args.baseline}")
    torch.set_num_threads(args.threads)
    if args.short_sentences:
        print(f"CPU time of explicit relative to fused softmax: median (95% interval); {args.rounds} rounds")
        print_softmax_tables(args.rounds)
        print_origin()
        return
    cells = {n: measure(args, n) for n in args.lengths}
    mask = "causal" if args.causal else "dense"
    print(f"B {args.batch}, H {args.heads}, D {args.head_dim}, {args.dtype}, {mask}; {args.rounds} rounds;")
    print(f"relative to {args.baseline}: median time (95% interval) · peak memory\n")
    print(markdown_tables(args, cells))
    print_origin()


if __name__ == "__main__":
    with exit_on_user_error():
        main()
