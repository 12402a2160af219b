"""Measure time and peak memory of attention relative to PyTorch's fused softmax, alternating in one process.

    python benchmarks/attention.py --lengths 128 512 1024 2048
    python benchmarks/attention.py --systems softmax "softmax, cuDNN" relu "relu, with row stats" --batch 16 \\
        --dtype bfloat16
    python benchmarks/attention.py --systems "softmax, flash" "softmax, explicit" softmax --baseline "softmax, flash" \\
        --tokens 4200 --heads 4 --lengths 8 14 28 64 128 --padding 0.17

A system is a mechanism, or one of its implementations: "softmax" is `scaled_dot_product_attention` where relumt uses
it, on a GPU with cuDNN, as training with --compile has it; "softmax, flash" and so on one of its backends, "softmax,
explicit" scores, weights and product, "relu, unfused" ReLU attention by PyTorch's operators, and "inhibitor, fp16
pairs" half precision where a GPU has a kernel for it. Each round runs every system once, so that what slows the machine
slows all of them. Reported are median times, by the GPU's clock if there is one; the median of the paired ratios to the
baseline with its 95% interval; peak memory; and its ratio. Lower is better. Times include what a mechanism does to the
concatenated heads (ReLA's norm). Forward passes are those of inference, so the other two are not their sum. What cannot
run is left out, and the reason is printed, as is what takes longer than MAX_SECONDS on a GPU.
"""

import argparse
import os
import statistics
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from timing import alternating_times, benchmark_device, peak_bytes, print_origin, seconds, write_results
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from relumt.attention import MECHANISMS, AttentionMask, Need
from relumt.errors import AttemptFailedError, UserError, exit_on_user_error
from relumt.papers.speeds import format_ratio, median_ratio
from relumt.plugin.cpu_products import select_fp32_backend
from relumt.process import KERNELS_VARIABLE, ArgumentParser, positive_integer, share

Attend = Callable[[Tensor, Tensor, Tensor], list[Tensor]]
"""q, k, v [B, H, n, D] → the concatenated heads [n, B, E], and row stats if they are needed."""

BACKENDS = {
    "softmax, flash": SDPBackend.FLASH_ATTENTION,
    "softmax, cuDNN": SDPBackend.CUDNN_ATTENTION,
    "softmax, efficient": SDPBackend.EFFICIENT_ATTENTION,
    "softmax, math": SDPBackend.MATH,
}
PAIRWISE, LONGEST_PAIRWISE = "inhibitor, naive", 512
"""The system with tensors of n·n·D elements, and its greatest length."""

UNFUSED, PAIRS = "relu, unfused", "inhibitor, fp16 pairs"
KERNELS = {UNFUSED: "reference", PAIRS: "experimental"}
"""What RELUMT_KERNELS is set to for a system."""

IMPLEMENTATIONS: dict[str, tuple[str, dict[str, Any], Need]] = {
    "softmax, explicit": ("softmax", {}, Need.WEIGHTS),
    "relu, with row stats": ("relu", {}, Need.ROW_STATS),
    UNFUSED: ("relu", {}, Need.NOTHING),
    "relu_l1, power 8": ("relu_l1", {"power": 8}, Need.NOTHING),
    PAIRS: ("inhibitor", {}, Need.NOTHING),
    "inhibitor, cdist": ("inhibitor", {"implementation": "cdist"}, Need.NOTHING),
    PAIRWISE: ("inhibitor", {"implementation": "naive"}, Need.NOTHING),
}
"""System → mechanism, its options, what is needed besides the output."""

MECHANISM_SYSTEMS = {name: (name, {}, Need.NOTHING) for name in MECHANISMS} | IMPLEMENTATIONS

MAX_SECONDS = 0.1
"""Longest forward and backward pass on a GPU that is timed; slower systems would take most of the benchmark's time."""

WARM_UPS, REPEATS = 3, 10
CYCLES_TO_QUEUE = 4_000_000
"""About 2 ms: more than Python takes to queue what is timed."""
CACHE_BYTES = 256 * 2**20
"""More than the cache of any GPU."""


def device() -> str:
    """Return the type of the device to measure on."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def kernel_seconds(work: Callable[[], object]) -> float:
    """Return the median time of `work` by the clock of a GPU; on a CPU its wall time, measured once.

    Before each repeat the GPU's cache is overwritten, and the GPU waits until all of `work` is queued, so that the time
    Python takes to queue it does not count.
    """
    if device() == "cpu":
        return seconds(work)
    cache = torch.empty(CACHE_BYTES, dtype=torch.int8, device="cuda")
    times = []
    for repeat in range(WARM_UPS + REPEATS):
        cache.zero_()
        torch.cuda._sleep(CYCLES_TO_QUEUE)
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        work()
        end.record()
        torch.cuda.synchronize()
        if repeat >= WARM_UPS:
            times.append(start.elapsed_time(end) / 1e3)
    return statistics.median(times)


def softmax_by(backend: SDPBackend, mask: AttentionMask, n: int, dropout_p: float) -> Attend:
    """Return softmax attention by one backend, which raises RuntimeError if it does not accept the call."""
    is_causal = mask.is_causal and mask.key_mask is None
    attn_mask = None if is_causal else mask.to_dense(n, n, torch.device(device()))  # made once, so it takes no time

    def attend(q: Tensor, k: Tensor, v: Tensor) -> list[Tensor]:
        with sdpa_kernel(backend):
            output = F.scaled_dot_product_attention(q, k, v, attn_mask, dropout_p=dropout_p, is_causal=is_causal)
        return [concatenate(output)]

    return attend


def mechanism_by(system: str, args: argparse.Namespace, mask: AttentionMask) -> Attend:
    """Return a mechanism by one of its implementations."""
    name, options, need = MECHANISM_SYSTEMS[system]
    mechanism = MECHANISMS[name](args.heads, args.head_dim, args.dropout, **options).to(device()).train()
    setting = KERNELS.get(system, os.environ.get(KERNELS_VARIABLE, "auto"))

    def attend(q: Tensor, k: Tensor, v: Tensor) -> list[Tensor]:
        os.environ[KERNELS_VARIABLE] = setting
        output, _, stats = mechanism(q, k, v, mask, need)
        rows = [] if stats is None else [stats.weight_sum, stats.weight_log_weight_sum]
        return [mechanism.postprocess_heads(concatenate(output)), *rows]

    return attend


def concatenate(output: Tensor) -> Tensor:
    """Concatenate heads: [B, H, n, D] → [n, B, E]."""
    return output.permute(2, 0, 1, 3).flatten(2)


def make_mask(args: argparse.Namespace, batch: int, n: int) -> AttentionMask:
    """Return a mask for sentences of several lengths padded to n, or of length n without --padding."""
    if not args.padding:
        return AttentionMask(None, args.causal)
    lengths = torch.linspace(1 - 2 * args.padding, 1, batch).mul(n).long().clamp(min=1)
    return AttentionMask((torch.arange(n)[None] < lengths[:, None]).to(device()), args.causal)


def passes(attend: Attend, inputs: list[Tensor]) -> dict[str, Callable[[], object]]:
    """Return what is timed, by direction."""
    outputs = attend(*inputs)  # may compile
    grads = [torch.randn_like(output) for output in outputs]

    @torch.no_grad()
    def forward() -> None:
        attend(*inputs)

    return {
        "forward": forward,
        "backward": lambda: torch.autograd.grad(outputs, inputs, grads, retain_graph=True),
        "forward + backward": lambda: torch.autograd.grad(attend(*inputs), inputs, grads),
    }


def working_systems(args: argparse.Namespace, n: int) -> dict[str, dict[str, Callable[[], object]]]:
    """Return what is timed at length n, by system and direction; print why other systems are not."""
    batch = args.tokens // n if args.tokens else args.batch
    generator, mask = torch.Generator().manual_seed(1), make_mask(args, batch, n)
    drawn = (torch.randn(n, batch, args.heads, args.head_dim, generator=generator) for _ in range(3))
    # As a projection lays heads out: [n, B, H, D] -> [B, H, n, D]
    inputs = [x.to(device(), getattr(torch, args.dtype)).permute(1, 2, 0, 3).requires_grad_() for x in drawn]
    working = {}
    for system in args.systems:
        try:
            if system == PAIRWISE and n > LONGEST_PAIRWISE:
                raise AttemptFailedError(f"its tensors of n·n·D elements are limited to n = {LONGEST_PAIRWISE}")
            backend = BACKENDS.get(system)
            attend = softmax_by(backend, mask, n, args.dropout) if backend else mechanism_by(system, args, mask)
            found = passes(attend, inputs)
            taken = 0.0 if device() == "cpu" else min(seconds(found["forward + backward"]) for _ in range(3))
            if taken > MAX_SECONDS:
                raise AttemptFailedError(f"takes {taken:.2g} seconds, more than {MAX_SECONDS}")
            working[system] = found
        except Exception as error:  # every system raises errors of its own
            print(f"n = {n}: no {system}: {str(error).splitlines()[0][:120]}", file=sys.stderr)
    if args.baseline not in working:
        raise UserError(f"n = {n}: {args.baseline} cannot run, see above; give another --baseline")
    return working


def measure(args: argparse.Namespace, n: int) -> dict[str, dict[str, dict[str, Any]]]:
    """Print the rows of a length; return system → direction → ms, time and memory relative to the baseline's, MiB."""
    systems = working_systems(args, n)
    results: dict[str, dict[str, dict[str, Any]]] = {system: {} for system in systems}
    for direction in next(iter(systems.values())):
        works: Mapping[str, Callable[[], object]] = {system: found[direction] for system, found in systems.items()}
        times = alternating_times(works, args.rounds, kernel_seconds)
        memory = {system: peak_bytes(work) for system, work in works.items()}
        for system in systems:
            ratios = [own / base for own, base in zip(times[system], times[args.baseline], strict=True)]
            results[system][direction] = values = {
                "ms": statistics.median(times[system]) * 1e3, "relative time": median_ratio(ratios),
                "MiB": memory[system] / 2**20, "relative memory": memory[system] / memory[args.baseline],
            }  # fmt: skip
            cells = [f"{values['ms']:.3g}", format_ratio(values["relative time"]), f"{values['MiB']:.3g}"]
            cells.append(f"{values['relative memory']:.2f}")
            print(f"| {n} | {system} | {direction} | " + " | ".join(cells) + " |", flush=True)
    return results


def main() -> None:
    """Measure, print the table and write the JSON file."""
    parser = ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [*MECHANISM_SYSTEMS, *BACKENDS]
    parser.add_argument("--systems", nargs="+", default=[*MECHANISM_SYSTEMS], choices=names, metavar="SYSTEM")
    parser.add_argument("--baseline", default="softmax", choices=names, metavar="SYSTEM")
    parser.add_argument("--lengths", nargs="+", type=positive_integer, default=[128, 512, 1024, 2048])
    parser.add_argument("--batch", type=positive_integer, default=1)
    parser.add_argument("--tokens", type=positive_integer, help="per batch, instead of --batch")
    parser.add_argument("--heads", type=positive_integer, default=8)
    parser.add_argument("--head-dim", type=positive_integer, default=64)
    parser.add_argument("--dtype", default="float32", choices=["float32", "float16", "bfloat16"])
    parser.add_argument("--causal", action="store_true")
    parser.add_argument("--padding", type=share, default=0.0, help="share of keys that are padding (default: 0)")
    parser.add_argument("--dropout", type=share, default=0.0)
    parser.add_argument("--rounds", type=positive_integer, default=11, help="timed runs (default: %(default)s)")
    parser.add_argument("--threads", type=positive_integer, default=torch.get_num_threads())
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    args = parser.parse_args()
    if args.baseline not in args.systems:
        raise UserError(f"--systems must include the baseline, {args.baseline}")
    select_fp32_backend()  # as in training
    torch.set_num_threads(args.threads)
    batch = f"{args.tokens} tokens" if args.tokens else f"B {args.batch}"
    what = f"{batch}, H {args.heads}, D {args.head_dim}, {args.dtype}, {'causal' if args.causal else 'dense'}"
    print(f"{what}, padding {args.padding:g}, dropout {args.dropout:g}; {args.rounds} rounds\n")
    print(f"| n | system | direction | ms | time relative to {args.baseline} (95% interval) | MiB | relative |")
    print("|---" * 7 + "|")
    results = {}
    for n in args.lengths:
        results[str(n)] = measure(args, n)
        if args.json:  # after each length: a later one may fail
            write_results(args.json, what, args.baseline, benchmark_device(None), {"lengths": results})
    print_origin()


if __name__ == "__main__":
    with exit_on_user_error():
        main()
