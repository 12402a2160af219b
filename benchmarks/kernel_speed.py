"""Compare the fused kernels with PyTorch's fastest softmax attention and with the limits of the machine.

    python benchmarks/kernel_speed.py --json kernels.json
    python benchmarks/kernel_speed.py --batch 64 --heads 4 --lengths 64 128 --padding 0.25 --causal --dropout 0.1

First the machine's ceilings are measured: a large matrix product in the chosen type, and a copy. Then, for every
length, all systems' forward and backward passes alternate in one process. The table shows median times, TFLOP/s counted
as for FlashAttention (two products forward, five backward, half of that if causal), their share of the ceiling, peak
memory, and the speed relative to the fastest softmax (above 1 is faster). "softmax" is `scaled_dot_product_attention`
with each of its backends; "flex" is ReLU attention by FlexAttention: a softmax of log(ReLU(s) + N), multiplied by its
sum, less N·Σv. `peer_kernels.py` adds kernels of other packages, if they are installed. What cannot run or takes longer
than MAX_SECONDS is left out, and the reason is printed. Made for a GPU; on a CPU, with TRITON_INTERPRET=1, small sizes
show that it works.
"""

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
import torch.nn.functional as F
from kernel_timing import kernel_seconds
from peer_kernels import peer_systems
from timing import benchmark_device, peak_bytes, print_origin, write_results
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from relumt.arguments import ArgumentParser, positive_integer, share
from relumt.attention import MECHANISMS, AttentionMask, Need
from relumt.attention.kernels import sparse_adasplash
from relumt.errors import AttemptFailedError, exit_on_user_error
from relumt.runs.environment import Device

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
BACKENDS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "cuDNN": SDPBackend.CUDNN_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "math": SDPBackend.MATH,
}
MECHANISM_SYSTEMS = {
    "relu": ("relu", {}, Need.NOTHING),
    "relu, with row stats": ("relu", {}, Need.ROW_STATS),
    "sigmoid": ("sigmoid", {}, Need.NOTHING),
    "inhibitor": ("inhibitor", {}, Need.NOTHING),
    "inhibitor, cdist": ("inhibitor", {"implementation": "cdist"}, Need.NOTHING),
}
UNFUSED = "relu, unfused"
FLEX = "relu, flex"
RELU_SYSTEMS = ("relu", UNFUSED, FLEX)
"""Systems that compute [RF] Eq. 6 and nothing else."""
FLEX_OFFSET = 1.0
"""N: FlexAttention takes the logarithm of ReLU(s) + N."""
MAX_SECONDS = 0.1
"""Longest forward and backward pass on a GPU that is timed; slower systems would take most of the benchmark's time."""


def device() -> str:
    """Return the type of the device to measure on."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def measured_device(dtype: str) -> Device:
    """Describe the device, with the precision that `dtype` stands for."""
    names = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}
    return replace(benchmark_device(None), precision=names[dtype])


def ceilings(dtype: torch.dtype, size: int) -> dict[str, float]:
    """Return TFLOP/s of a product of two square matrices, and GB/s of a copy (read and write)."""
    a, b = (torch.randn(size, size, device=device()).to(dtype) for _ in range(2))
    product = min(kernel_seconds(lambda: a @ b) for _ in range(10))
    copy = min(kernel_seconds(lambda: a.clone()) for _ in range(10))
    return {
        "product, TFLOP/s": 2 * size**3 / product / 1e12,
        "copy, GB/s": 2 * a.numel() * a.element_size() / copy / 1e9,
    }


def all_systems(args: argparse.Namespace, mask: AttentionMask, n: int) -> dict[str, Attend]:
    """Return every system by name."""
    systems: dict[str, Attend] = {}
    for name, backend in BACKENDS.items():
        systems[f"softmax, {name}"] = softmax_by(backend, mask, n, args.dropout)
    for name, (mechanism, options, need) in MECHANISM_SYSTEMS.items():
        systems[name] = attend_with("fused", mechanism, options, need, args, mask)
    systems[UNFUSED] = attend_with("reference", "relu", {}, Need.NOTHING, args, mask)
    systems["entmax15, entmax package"] = attend_with("reference", "entmax15", {}, Need.NOTHING, args, mask)
    if sparse_adasplash.serves(torch.device(device()), torch.float32):
        systems["entmax15, AdaSplash's projection"] = attend_with("fused", "entmax15", {}, Need.NOTHING, args, mask)
    systems.update(peer_systems(args, mask))
    if device() == "cuda" and not args.dropout and mask.key_mask is None:
        systems[FLEX] = flex(args, mask, n)
    return systems


def softmax_by(backend: SDPBackend, mask: AttentionMask, n: int, dropout_p: float) -> Attend:
    """Return softmax attention by one backend, which raises RuntimeError if it does not accept the call."""
    is_causal = mask.is_causal and mask.key_mask is None
    attn_mask = None if is_causal else mask.to_dense(n, n, torch.device(device()))  # made once, so it takes no time

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        with sdpa_kernel(backend):
            return F.scaled_dot_product_attention(q, k, v, attn_mask, dropout_p=dropout_p, is_causal=is_causal)

    return attend


def attend_with(
    kernels: str, name: str, options: dict, need: Need, args: argparse.Namespace, mask: AttentionMask
) -> Attend:
    """Return a mechanism that runs with RELUMT_KERNELS set to `kernels`."""
    mechanism = MECHANISMS[name](args.heads, args.head_dim, args.dropout, **options).to(device()).train()

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        os.environ["RELUMT_KERNELS"] = kernels
        output, _, stats = mechanism(q, k, v, mask, need)
        if stats is None:
            return output
        # Added to the output, so that the backward pass includes the gradients of the row stats.
        return output + (stats.weight_sum + stats.weight_log_weight_sum)[..., None].to(q.dtype)

    return attend


def flex(args: argparse.Namespace, mask: AttentionMask, n: int) -> Attend:
    """Return ReLU attention, scaled as in [RF] Eq. 6, by FlexAttention."""
    import torch._functorch.config
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    torch._functorch.config.donated_buffer = False  # the backward pass is repeated for timing
    like = torch.empty(0, device=device())
    factor = MECHANISMS["relu"](args.heads, args.head_dim).factor(n, n, mask, like)
    factors = torch.as_tensor(factor, device=device(), dtype=torch.float32).flatten().expand(n).contiguous()
    block_mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, n, n, device()) if args.causal else None
    torch.compiler.reset()  # else the limit of recompilations would leave the longest sequences uncompiled
    compiled = torch.compile(flex_attention, dynamic=False)  # dynamic shapes would be slower

    def score(s: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return torch.log(torch.relu(s) * factors[i] + FLEX_OFFSET)

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        output, log_weight_sum = compiled(q, k, v, score_mod=score, block_mask=block_mask, scale=1.0, return_lse=True)
        value_sum = v.cumsum(2) if args.causal else v.sum(2, keepdim=True)
        return output * log_weight_sum.exp()[..., None].to(output.dtype) - FLEX_OFFSET * value_sum

    return attend


def make_mask(args: argparse.Namespace, n: int) -> AttentionMask:
    """Return a mask for sentences of several lengths padded to n, or of length n without --padding."""
    if not args.padding:
        return AttentionMask(None, args.causal)
    lengths = torch.linspace(1 - 2 * args.padding, 1, args.batch).mul(n).long().clamp(min=1)
    return AttentionMask((torch.arange(n)[None] < lengths[:, None]).to(device()), args.causal)


def working_systems(systems: dict[str, Attend], inputs: list[Tensor], grad: Tensor) -> dict[str, Attend]:
    """Return the systems that run forward and backward; print why the others do not."""
    working = {}
    for name, attend in systems.items():
        try:
            attend(*inputs).backward(grad)  # may compile
            seconds = pass_seconds(attend, inputs, grad)
            if seconds > MAX_SECONDS:
                raise AttemptFailedError(f"takes {seconds:.2g} seconds, more than {MAX_SECONDS}")
            working[name] = attend
        except Exception as error:  # every system raises errors of its own
            print(f"n = {grad.shape[2]}: no {name}: {str(error).splitlines()[0][:120]}", file=sys.stderr)
    return working


def pass_seconds(attend: Attend, inputs: list[Tensor], grad: Tensor) -> float:
    """Return the least wall time of three forward and backward passes on a GPU: the first ones may compile.

    It is 0 on a CPU, where passes are not repeated.
    """
    if device() == "cpu":
        return 0.0
    times = []
    for _ in range(3):
        torch.cuda.synchronize()
        start_time = time.perf_counter()
        attend(*inputs).backward(grad)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start_time)
    return min(times)


def measure_times(
    systems: dict[str, Attend], inputs: list[Tensor], grad: Tensor, rounds: int
) -> dict[str, dict[str, float]]:
    """Return system → direction → median seconds; the systems alternate, so that what slows the machine slows all."""
    times: dict[str, dict[str, list[float]]] = {name: {"forward": [], "backward": []} for name in systems}
    for round_number in range(rounds):
        for name in list(systems) if round_number % 2 else reversed(systems):
            attend = systems[name]
            output = attend(*inputs)
            times[name]["forward"].append(kernel_seconds(lambda attend=attend: attend(*inputs)))
            times[name]["backward"].append(
                kernel_seconds(lambda output=output: torch.autograd.grad(output, inputs, grad, retain_graph=True))
            )
    return {
        name: {direction: statistics.median(seconds) for direction, seconds in by_direction.items()}
        for name, by_direction in times.items()
    }


def relative_error(args: argparse.Namespace, attend: Attend, inputs: list[Tensor], mask: AttentionMask) -> float:
    """Return ‖output − exact‖ / ‖exact‖ of ReLU attention, for the first sentence and head; exact is in float64."""
    first = AttentionMask(None if mask.key_mask is None else mask.key_mask[:1], mask.is_causal)
    relu = MECHANISMS["relu"](1, args.head_dim)
    with torch.no_grad():
        exact = relu.to(device())(*(x[:1, :1].double() for x in inputs), first).output
        ours = attend(*inputs)[:1, :1].double()
    return ((ours - exact).norm() / exact.norm()).item()


def measure(args: argparse.Namespace, n: int, ceiling: float) -> dict[str, dict[str, dict[str, float]]]:
    """Return system → direction → milliseconds, TFLOP/s, share of the ceiling, MiB, speed relative to the best softmax.

    The forward passes of RELU_SYSTEMS have their error, too.
    """
    generator = torch.Generator().manual_seed(1)
    shape, dtype = (args.batch, args.heads, n, args.head_dim), getattr(torch, args.dtype)
    inputs = [torch.randn(shape, generator=generator).to(device(), dtype).requires_grad_() for _ in range(3)]
    grad = torch.randn(shape, generator=generator).to(device(), dtype)
    mask = make_mask(args, n)
    systems = working_systems(all_systems(args, mask, n), inputs, grad)
    times = measure_times(systems, inputs, grad, args.rounds)
    flops = 4 * args.batch * args.heads * n * n * args.head_dim / (2 if args.causal else 1)
    result: dict[str, dict[str, dict[str, float]]] = {}
    for name, attend in systems.items():
        result[name] = {}
        memory = peak_bytes(lambda attend=attend: attend(*inputs).backward(grad))
        for direction, operations in (("forward", flops), ("backward", 2.5 * flops)):
            softmax = min(times[other][direction] for other in systems if other.startswith("softmax"))
            rate = operations / times[name][direction] / 1e12
            result[name][direction] = {
                "ms": times[name][direction] * 1e3, "TFLOP/s": rate, "share": rate / ceiling, "MiB": memory / 2**20,
                "relative to best softmax": softmax / times[name][direction],
            }  # fmt: skip
        if name in RELU_SYSTEMS and not args.dropout:
            result[name]["forward"]["error"] = relative_error(args, attend, inputs, mask)
    return result


def main() -> None:
    """Measure, print the table and write the JSON file."""
    parser = ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", nargs="+", type=positive_integer, default=[128, 512, 1024, 2048, 4096])
    parser.add_argument("--batch", type=positive_integer, default=16)
    parser.add_argument("--heads", type=positive_integer, default=8)
    parser.add_argument("--head-dim", type=positive_integer, default=64)
    parser.add_argument("--dtype", default="bfloat16", choices=["float32", "float16", "bfloat16"])
    parser.add_argument("--causal", action="store_true")
    parser.add_argument("--padding", type=share, default=0.0, help="share of keys that are padding (default: 0)")
    parser.add_argument("--dropout", type=share, default=0.0)
    parser.add_argument("--rounds", type=positive_integer, default=5, help="timed runs per system (default: 5)")
    parser.add_argument(
        "--ceiling-size", type=positive_integer, default=8192, help="rows of its matrices (default: 8192)"
    )
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    args = parser.parse_args()
    limits = ceilings(getattr(torch, args.dtype), args.ceiling_size)
    print("ceilings: " + ", ".join(f"{name} {value:.1f}" for name, value in limits.items()) + "\n")
    shape = f"B {args.batch}, H {args.heads}, D {args.head_dim}, {args.dtype}, {'causal' if args.causal else 'dense'}"
    print(f"{shape}, padding {args.padding:g}, dropout {args.dropout:g}; {args.rounds} rounds\n")
    print("| n | system | direction | ms | TFLOP/s | share of ceiling | MiB | relative to best softmax | error |")
    print("|---" * 9 + "|")
    results = {}
    for n in args.lengths:
        results[str(n)] = measure(args, n, limits["product, TFLOP/s"])
        for name, directions in results[str(n)].items():
            for direction, values in directions.items():
                cells = [f"{value:.3g}" for value in values.values()] + [""] * ("error" not in values)
                print(f"| {n} | {name} | {direction} | " + " | ".join(cells) + " |", flush=True)
        if args.json:  # after each length: a later one may fail
            write_results(
                args.json,
                shape,
                "the best softmax",
                measured_device(args.dtype),
                {"ceilings": limits, "lengths": results},
            )
    print_origin()


if __name__ == "__main__":
    with exit_on_user_error():
        main()
