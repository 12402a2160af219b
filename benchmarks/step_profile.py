"""Where the time of a training step goes, by `torch.profiler`: in a worker's process, and as tables of all systems.

Times are per step and under the profiler, which slows the CPU down: compare the GPU's busy time with the time of a step
without it. A synchronization is a call in which the CPU waits for the GPU.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

KINDS = {
    "products": r"gemm|gemv|cutlass|xmma|nvjet|cublas|splitK",
    "attention": r"flash|fmha|sdpa|cudnn|mem_eff|^forward|^backward_d",
    "softmax": r"softmax",
    "optimizer": r"adam|multi_tensor|_foreach",
    "copies": r"^Mem|copy|cat|index|gather|scatter|embedding",
}
"""Kind of kernel → what its name contains; the first that matches counts, and all others are "other"."""

SYNCHRONIZATIONS = re.compile(r"cuda(Stream|Device|Event)Synchronize|cudaMemcpy$")
LAUNCHES = re.compile(r"cu(da)?(Launch|GraphLaunch)\w*Kernel\w*|cudaGraphLaunch")
ROWS = 12
"""Rows of the tables of kernels and operators."""

Summary = dict[str, Any]


def profile_steps(take_step: Callable[[int], int], numbers: Iterable[int]) -> Summary:
    """Return what `take_step` does for each of the batches `numbers`, per step; times are in milliseconds."""
    numbers = list(numbers)
    has_gpu = torch.cuda.is_available()
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if has_gpu else [])]
    with profile(activities=activities) as profiler:
        for number in numbers:
            take_step(number)
        if has_gpu:
            torch.cuda.synchronize()
    events = list(profiler.profiler.kineto_results.events())
    kernels = [event for event in events if event.device_type() == DeviceType.CUDA and not event.is_user_annotation()]
    calls = Counter(event.name() for event in events if event.device_type() == DeviceType.CPU)
    per_step = 1 / len(numbers)
    own_times: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for kernel in kernels:
        own_times[kernel.name()] += kernel.duration_ns() / 1e6 * per_step
        counts[kernel.name()] += 1
    by_kind: Counter[str] = Counter()
    for name, time in own_times.items():
        by_kind[kind_of_kernel(name)] += time
    operators = {row.key: row.self_cpu_time_total / 1e3 * per_step for row in profiler.key_averages()}
    spans = [(kernel.start_ns(), kernel.start_ns() + kernel.duration_ns()) for kernel in kernels]
    return {
        "busy": busy_time(spans) / 1e6 * per_step,
        "kinds": dict(by_kind),
        "kernels": [(name, time, counts[name] * per_step) for name, time in own_times.most_common(ROWS)],
        "operators": Counter(operators).most_common(ROWS),
        "launches": sum(count for name, count in calls.items() if LAUNCHES.match(name)) * per_step,
        "synchronizations": sum(count for name, count in calls.items() if SYNCHRONIZATIONS.match(name)) * per_step,
        "reads": calls["aten::_local_scalar_dense"] * per_step,
    }


def kind_of_kernel(name: str) -> str:
    """Return the kind of a kernel, one of KINDS or "other"."""
    return next((kind for kind, pattern in KINDS.items() if re.search(pattern, name, re.IGNORECASE)), "other")


def busy_time(spans: Iterable[tuple[int, int]]) -> int:
    """Return the length of the union of intervals (start, end)."""
    busy, last = 0, 0
    for start, end in sorted(spans):
        busy += max(0, end - max(start, last))
        last = max(last, end)
    return busy


def profile_tables(summaries: Mapping[str, Summary], step_times: Mapping[str, float]) -> str:
    """Return Markdown tables of all systems, and of each system's kernels and operators.

    Args:
        summaries: system → what `profile_steps` returned.
        step_times: system → median milliseconds of a step without the profiler.
    """
    kinds = [*KINDS, "other"]
    lines = [
        f"| system | step, ms | GPU busy, ms | share | {', ms | '.join(kinds)}, ms | launches | synchronizations "
        "| numbers read |",
        "|---" * (7 + len(kinds)) + "|",
    ]
    for name, found in summaries.items():
        times = " | ".join(f"{found['kinds'].get(kind, 0):.2f}" for kind in kinds)
        busy, step = found["busy"], step_times[name]
        counts = " | ".join(f"{found[count]:.0f}" for count in ("launches", "synchronizations", "reads"))
        lines.append(f"| {name} | {step:.1f} | {busy:.1f} | {busy / step:.2f} | {times} | {counts} |")
    for name, found in summaries.items():
        if found["kernels"]:  # there are none on a CPU
            lines += ["", f"{name}: kernels", "", "| kernel | ms per step | times per step |", "|---|---|---|"]
        lines += [f"| `{shorten(kernel)}` | {time:.3f} | {count:.1f} |" for kernel, time, count in found["kernels"]]
        lines += ["", f"{name}: operators on the CPU", "", "| operator | own ms per step |", "|---|---|"]
        lines += [f"| `{shorten(operator)}` | {time:.3f} |" for operator, time in found["operators"]]
    return "\n".join(lines)


def shorten(name: str) -> str:
    """Return a kernel's name without its types, at most 90 characters."""
    return re.sub(r"\s+", " ", name.replace("|", "/"))[:90]
