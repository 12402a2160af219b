"""The fused kernels against the best that PyTorch has for softmax, beside what the machine can do at all.

    python benchmarks/kernel_speed.py --json kernels.json
    python benchmarks/kernel_speed.py --batch 64 --heads 4 --lengths 64 128 --padding 0.25 --causal --dropout 0.1

First the machine's own ceilings: a large matrix product in the type that is measured, and a copy. Then, for every
length, each system's forward pass and backward pass, in turn in one process: median time, TFLOP/s counted as for flash
attention (two products forward, five backward, half of it if causal), its share of the ceiling, peak memory, and the
ratio of the best softmax's time to it, above 1 is faster. "softmax" is `scaled_dot_product_attention` by each of its
backends; "flex" is ReLU by FlexAttention: a softmax of log(ReLU(s) + N), multiplied by its sum and less N·Σv. What
cannot run is left out, and why is said. Made for a GPU; on a CPU under TRITON_INTERPRET=1 it runs in small, to see that
it does.
"""

import argparse
import os
import statistics
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
import torch.nn.functional as F
from timing import benchmark_device, kernel_seconds, peak_bytes, write_results
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from relumt.attention import MECHANISMS, AttentionMask, Need
from relumt.errors import exit_on_user_error
from relumt.runs.environment import Device

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
BACKENDS = {
    "softmax, flash": SDPBackend.FLASH_ATTENTION,
    "softmax, cuDNN": SDPBackend.CUDNN_ATTENTION,
    "softmax, efficient": SDPBackend.EFFICIENT_ATTENTION,
    "softmax, math": SDPBackend.MATH,
}
OURS = {
    "relu": ("relu", {}, Need.NOTHING),
    "relu, with statistics": ("relu", {}, Need.ROW_STATS),
    "sigmoid": ("sigmoid", {}, Need.NOTHING),
    "inhibitor": ("inhibitor", {}, Need.NOTHING),
    "inhibitor, cdist": ("inhibitor", {"implementation": "cdist"}, Need.NOTHING),
}
UNFUSED = "relu, unfused"
FLEX = "relu, flex"
OF_RELU = ("relu", UNFUSED, FLEX)
"""What computes [RF] Eq. 6 and nothing else."""
SHIFT = 1.0
"""N of FlexAttention's way: what is added to ReLU before the logarithm."""


def device() -> str:
    """Where it is measured."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def device_of(dtype: str) -> Device:
    """What the figures of kernels in this type are of."""
    names = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}
    return replace(benchmark_device(None), precision=names[dtype])


def ceilings(dtype: torch.dtype, size: int) -> dict[str, float]:
    """TFLOP/s of a product of two square matrices, and GB/s of a copy, read and written."""
    a, b = (torch.randn(size, size, device=device()).to(dtype) for _ in range(2))
    product = min(kernel_seconds(lambda: a @ b) for _ in range(10))
    copy = min(kernel_seconds(lambda: a.clone()) for _ in range(10))
    return {
        "product, TFLOP/s": 2 * size**3 / product / 1e12,
        "copy, GB/s": 2 * a.numel() * a.element_size() / copy / 1e9,
    }


def systems(args: argparse.Namespace, mask: AttentionMask, n: int) -> dict[str, Attend]:
    """Every way to attend, by name."""
    found: dict[str, Attend] = {}
    square = args.causal and mask.key_mask is None
    mask = None if square else mask.to_dense(n, n, torch.device(device()))
    for name, backend in BACKENDS.items():

        def by_backend(q: Tensor, k: Tensor, v: Tensor, backend: SDPBackend = backend) -> Tensor:
            with sdpa_kernel(backend):
                return F.scaled_dot_product_attention(q, k, v, mask, dropout_p=args.dropout, is_causal=square)

        found[name] = by_backend
    for name, (mechanism, options, need) in OURS.items():
        found[name] = attend_with("fused", mechanism, options, need, args, mask)
    found[UNFUSED] = attend_with("reference", "relu", {}, Need.NOTHING, args, mask)
    if device() == "cuda" and not args.dropout and mask.key_mask is None:
        found[FLEX] = flex(args, mask, n)
    return found


def attend_with(
    kernels: str, name: str, options: dict, need: Need, args: argparse.Namespace, mask: AttentionMask
) -> Attend:
    """A mechanism by the kernels named."""
    mechanism = MECHANISMS[name](args.heads, args.head_dim, args.dropout, **options).to(device()).train()

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        os.environ["RELUMT_KERNELS"] = kernels
        result = mechanism(q, k, v, mask, need)
        if result.row_stats is None:
            return result.output
        return result.output + (result.row_stats.weight_sum + result.row_stats.weight_log_weight_sum)[..., None].to(
            q.dtype
        )

    return attend


def flex(args: argparse.Namespace, mask: AttentionMask, n: int) -> Attend:
    """ReLU attention, scaled as [RF] Eq. 6, by FlexAttention."""
    import torch._functorch.config
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    torch._functorch.config.donated_buffer = False  # so that a backward pass can be repeated, to time it
    like = torch.empty(0, device=device())
    factor = MECHANISMS["relu"](args.heads, args.head_dim).factor(n, n, mask, like)
    of_rows = torch.as_tensor(factor, device=device(), dtype=torch.float32).flatten().expand(n).contiguous()
    mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, n, n, device()) if args.causal else None
    compiled = torch.compile(flex_attention)

    def score(s: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return torch.log(torch.relu(s) * of_rows[i] + SHIFT)

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        mixed, log_weight_sum = compiled(q, k, v, score_mod=score, block_mask=mask, scale=1.0, return_lse=True)
        of_values = v.cumsum(2) if args.causal else v.sum(2, keepdim=True)
        return mixed * log_weight_sum.exp()[..., None].to(mixed.dtype) - SHIFT * of_values

    return attend


def visible_keys(args: argparse.Namespace, n: int) -> AttentionMask:
    """Sentences of several lengths, padded at their end, or all of n keys."""
    if not args.padding:
        return AttentionMask(None, args.causal)
    lengths = torch.linspace(1 - 2 * args.padding, 1, args.batch).mul(n).long().clamp(min=1)
    return AttentionMask((torch.arange(n)[None] < lengths[:, None]).to(device()), args.causal)


def that_work(found: dict[str, Attend], inputs: list[Tensor], grad: Tensor) -> dict[str, Attend]:
    """Those of the systems that run forward and backward; of the others, why they do not is said."""
    works = {}
    for name, attend in found.items():
        try:
            attend(*inputs).backward(grad)
            works[name] = attend
        except Exception as error:  # each system has errors of its own for what it cannot do
            print(f"n = {grad.shape[2]}: no {name}: {str(error).splitlines()[0][:120]}", file=sys.stderr)
    return works


def times_in_turn(works: dict[str, Attend], inputs: list[Tensor], grad: Tensor, rounds: int) -> dict[str, dict]:
    """By system and direction the median of its seconds; what slows the machine slows every system."""
    times = {name: {"forward": [], "backward": []} for name in works}
    for round_ in range(rounds):
        for name in list(works) if round_ % 2 else reversed(works):
            attend = works[name]
            mixed = attend(*inputs)
            times[name]["forward"].append(kernel_seconds(lambda attend=attend: attend(*inputs)))
            times[name]["backward"].append(
                kernel_seconds(lambda mixed=mixed: torch.autograd.grad(mixed, inputs, grad, retain_graph=True))
            )
    return {name: {way: statistics.median(taken) for way, taken in of.items()} for name, of in times.items()}


def error(args: argparse.Namespace, attend: Attend, inputs: list[Tensor], mask: AttentionMask) -> float:
    """‖mixed − exact‖ / ‖exact‖ of ReLU attention, of the first sentence and head; exact is in float64."""
    first = AttentionMask(None if mask.key_mask is None else mask.key_mask[:1], mask.is_causal)
    relu = MECHANISMS["relu"](1, args.head_dim)
    with torch.no_grad():
        exact = relu.to(device())(*(x[:1, :1].double() for x in inputs), first).output
        ours = attend(*inputs)[:1, :1].double()
    return ((ours - exact).norm() / exact.norm()).item()


def measure(args: argparse.Namespace, n: int, ceiling: float) -> dict[str, dict[str, dict[str, float]]]:
    """By system and direction: milliseconds, TFLOP/s, share of the ceiling, MiB, speed relative to the best softmax.

    Of ReLU's own ways forward the error too.
    """
    seeded = torch.Generator().manual_seed(1)
    shape, dtype = (args.batch, args.heads, n, args.head_dim), getattr(torch, args.dtype)
    inputs = [torch.randn(shape, generator=seeded).to(device(), dtype).requires_grad_() for _ in range(3)]
    grad = torch.randn(shape, generator=seeded).to(device(), dtype)
    mask = visible_keys(args, n)
    works = that_work(systems(args, mask, n), inputs, grad)
    times = times_in_turn(works, inputs, grad, args.rounds)
    flops = 4 * args.batch * args.heads * n * n * args.head_dim / (2 if args.causal else 1)
    result = {}
    for name, attend in works.items():
        result[name] = {}
        memory = peak_bytes(lambda attend=attend: attend(*inputs).backward(grad))
        for direction, of_flops in (("forward", flops), ("backward", 2.5 * flops)):
            softmax = min(times[other][direction] for other in works if other.startswith("softmax"))
            rate = of_flops / times[name][direction] / 1e12
            result[name][direction] = {
                "ms": times[name][direction] * 1e3, "TFLOP/s": rate, "share": rate / ceiling, "MiB": memory / 2**20,
                "against the best softmax": softmax / times[name][direction],
            }  # fmt: skip
        if name in OF_RELU and not args.dropout:
            result[name]["forward"]["error"] = error(args, attend, inputs, mask)
    return result


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", nargs="+", type=int, default=[128, 512, 1024, 2048, 4096])
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--head-dim", type=int, default=64)
    parser.add_argument("--dtype", default="bfloat16", choices=["float32", "float16", "bfloat16"])
    parser.add_argument("--causal", action="store_true")
    parser.add_argument("--padding", type=float, default=0.0, help="share of the keys that are padding (default: 0)")
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--rounds", type=int, default=5, help="(default: 5)")
    parser.add_argument("--ceiling-size", type=int, default=8192, help="of the matrices (default: 8192)")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    args = parser.parse_args()
    limits = ceilings(getattr(torch, args.dtype), args.ceiling_size)
    print("ceilings: " + ", ".join(f"{name} {value:.1f}" for name, value in limits.items()) + "\n")
    shape = f"B {args.batch}, H {args.heads}, D {args.head_dim}, {args.dtype}, {'causal' if args.causal else 'dense'}"
    print(f"{shape}, padding {args.padding:g}, dropout {args.dropout:g}; {args.rounds} rounds\n")
    print("| n | system | direction | ms | TFLOP/s | share of the ceiling | MiB | against the best softmax | error |")
    print("|---" * 9 + "|")
    figures = {}
    for n in args.lengths:
        figures[str(n)] = measure(args, n, limits["product, TFLOP/s"])
        for name, directions in figures[str(n)].items():
            for direction, of in directions.items():
                cells = [f"{value:.3g}" for value in of.values()] + [""] * ("error" not in of)
                print(f"| {n} | {name} | {direction} | " + " | ".join(cells) + " |", flush=True)
        if args.json:  # after each length, so that none is lost with a later one
            write_results(
                args.json, shape, "the best softmax", device_of(args.dtype), {"ceilings": limits, "lengths": figures}
            )


if __name__ == "__main__":
    with exit_on_user_error():
        main()
