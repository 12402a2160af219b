"""Compare the Inhibitor's forward kernels with float64 and with each other: python benchmarks/gpu/inhibitor.py OUT.

Errors are norms of differences, relative to the norm of the output in float64. Both kernels get the same inputs, which
are exact in float16. Times are medians of ROUNDS turns, in which the kernels alternate. OUT/inhibitor.json has all
results.
"""

import argparse
import json
import math
import os
import sys
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.benchmark import Timer

GOAL = 430
"""Microseconds for the first of CALLS on an H100; the float32 kernel took 700."""
ROUNDS = 7
HALF_TOLERANCE = 2e-3


class Call(NamedTuple):
    """Sizes and options: B sentences, H heads, T queries, S keys, head size D, value size V."""

    name: str
    B: int
    H: int
    T: int
    S: int
    D: int = 64
    V: int = 64
    is_padded: bool = False
    is_causal: bool = False


CALLS = [
    Call("plain", 1, 8, 2048, 2048),
    Call("padded", 2, 8, 1024, 1024, is_padded=True),
    Call("causal", 1, 8, 2048, 2048, is_causal=True),
    Call("more keys", 4, 8, 127, 1025),
    Call("short", 16, 8, 32, 33, is_causal=True),
    Call("signed", 1, 8, 2048, 2048, V=128),
    Call("wide", 1, 8, 2048, 2048, 128, 128),
]


def main() -> int:
    """Measure, and return the exit status: 1 if a kernel is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", metavar="OUT", type=Path, help="folder for inhibitor.json")
    parser.add_argument("--tiny", action="store_true", help="small sizes in Triton's interpreter; needs no GPU")
    args = parser.parse_args()
    calls = CALLS
    if args.tiny:
        os.environ["TRITON_INTERPRET"] = "1"
        calls = [call._replace(B=1, H=1, T=9, S=10, D=5, V=6) for call in CALLS[:3]]
    print(f"Goal for the first line: {GOAL} µs.\n")
    print("| call | B × H × T × S, D, V | error fp32 | error fp16 | µs fp32 | µs fp16 | faster |")
    print("|---|---|---|---|---|---|---|")
    results = []
    for call in calls:
        results.append(measure(call, torch.device("cpu" if args.tiny else "cuda")))
        (args.out / "inhibitor.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    return int(any(not (r["errors"][0] < 1e-5 and r["errors"][1] < HALF_TOLERANCE) for r in results))


def measure(call: Call, device: torch.device) -> dict[str, object]:
    """Print a line of the table, and return its numbers."""
    from relumt.attention import AttentionMask
    from relumt.attention.kernels import inhibitor_naive, inhibitor_operator  # after TRITON_INTERPRET is set

    generator = torch.Generator().manual_seed(1)
    # The mean of |q − k|₁/√D is 1.15, as at initialization.
    scale = 1.15 * math.sqrt(math.pi) / 2 / math.sqrt(call.D)
    sizes = ((call.T, call.D, scale), (call.S, call.D, scale), (call.S, call.V, 1.0))
    q, k, v = (
        (torch.randn(call.B, call.H, n, d, generator=generator) * factor).half().float().to(device)
        for n, d, factor in sizes
    )
    gamma, shift = math.sqrt(call.D), torch.full((call.H, 1, 1), 0.5, device=device)
    key_mask = None
    if call.is_padded:
        lengths = torch.linspace(call.S // 2, call.S - 1, call.B).long()
        key_mask = (torch.arange(call.S) < lengths[:, None]).to(device)
    mask = AttentionMask(key_mask, call.is_causal)

    def attend(half: bool) -> Tensor:
        return inhibitor_operator.attend(q, k, v, gamma, shift, mask, None, 0.0, half, "inhibitor_triton")

    def error(output: Tensor) -> float:
        difference, norm = 0.0, 0.0
        for h in range(call.H):  # the equation has a tensor [B, T, S, D]
            exact = inhibitor_naive.attend(
                *(x[:, h : h + 1].double() for x in (q, k, v)), gamma, shift[h : h + 1].double(), mask, None
            )
            difference += (output[:, h : h + 1] - exact).square().sum().item()
            norm += exact.square().sum().item()
        return math.sqrt(difference / norm)

    torch.use_deterministic_algorithms(True, warn_only=True)  # fills new tensors with NaN
    errors = [error(attend(half)) for half in (False, True)]
    torch.use_deterministic_algorithms(False)
    times: list[list[float]] = [[], []]
    for _ in range(ROUNDS):
        for half in (False, True):
            timer = Timer("attend(half)", globals={"attend": attend, "half": half})
            times[half].append(timer.blocked_autorange(min_run_time=0.05).median * 1e6)
    old, new = (sorted(x)[ROUNDS // 2] for x in times)
    shape = f"{call.B} × {call.H} × {call.T} × {call.S}, {call.D}, {call.V}"
    numbers = f"{errors[0]:.1e} | {errors[1]:.1e} | {old:.0f} | {new:.0f} | {old / new:.2f} ×"
    print(f"| {call.name} | {shape} | {numbers} |", flush=True)
    return call._asdict() | {"errors": errors, "microseconds": times}


if __name__ == "__main__":
    sys.exit(main())
