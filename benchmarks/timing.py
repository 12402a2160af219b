"""What the benchmarks share: waiting for a GPU, an interval of medians, and the peak of memory."""

import json
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from relumt.atomic_output import write_text_atomically
from relumt.console import print_status
from relumt.runs.environment import Device, Precision, find_device

WARM_UPS, REPEATS = 3, 10
CYCLES_TO_QUEUE = 4_000_000
"""About 2 ms: more than Python takes to queue what is timed."""


def synchronise() -> None:
    """Wait for the GPU, where there is one."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def seconds(work: Callable[[], object]) -> float:
    """Wall time of `work`."""
    synchronise()
    start = time.perf_counter()
    work()
    synchronise()
    return time.perf_counter() - start


def seconds_of_kernels(work: Callable[[], object]) -> float:
    """Time of `work`: on a GPU the median of its own clock's, else wall time.

    Before each repeat the GPU's cache is overwritten, and it is kept waiting until all of `work` is queued, so that how
    long Python takes to queue it does not count.
    """
    if not torch.cuda.is_available():
        return seconds(work)
    cache = torch.empty(256 * 2**20, dtype=torch.int8, device="cuda")
    taken = []
    for repeat in range(WARM_UPS + REPEATS):
        cache.zero_()
        torch.cuda._sleep(CYCLES_TO_QUEUE)
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        work()
        end.record()
        synchronise()
        if repeat >= WARM_UPS:
            taken.append(start.elapsed_time(end) / 1e3)
    return statistics.median(taken)


def interval(ratios: list[float], samples: int = 10_000) -> tuple[float, float]:
    """95 % bootstrap interval of the median."""
    seeded = random.Random(1)
    medians = sorted(statistics.median(seeded.choices(ratios, k=len(ratios))) for _ in range(samples))
    return medians[int(0.025 * samples)], medians[int(0.975 * samples)]


def relative_to(baseline: str, times: dict[str, list[float]]) -> dict[str, dict[str, float]]:
    """By name: the baseline's times over its own, pair by pair: how many, their median, and the interval's ends."""
    summary = {}
    for name, measured in times.items():
        ratios = [b / a for a, b in zip(measured, times[baseline], strict=True)]
        low, high = interval(ratios)
        summary[name] = {"pairs": len(ratios), "median": statistics.median(ratios), "low": low, "high": high}
    return summary


def measured_on(precision: Precision | None) -> Device:
    """The device of a measurement, which takes place on one. precision: of training; None for what scripts/ choose."""
    return replace(find_device(precision), count=1)


def write_figures(path: Path, what: str, baseline: str, device: Device, figures: dict[str, Any]) -> None:
    """Write figures as JSON: what was measured on which device, and relative to what."""
    described = {"what": what, "baseline": baseline, "device": str(device)}
    write_text_atomically(path, json.dumps(described | figures, indent=2) + "\n")


def is_measured(path: Path | None, checkpoints: dict[str, str], device: Device) -> bool:
    """Whether `path` has figures of these very checkpoints, SHA-256 by model, on this kind of device; says so."""
    found = json.loads(path.read_text(encoding="utf-8")) if path and path.is_file() else {}
    measured = (found.get("checkpoints"), found.get("device")) == (checkpoints, str(device))
    if measured:
        print_status(f"{path}: measured already")
    return measured


def peak_bytes(work: Callable[[], object]) -> int:
    """Most memory held at a time by tensors that `work` made."""
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        work()
        synchronise()
        return torch.cuda.max_memory_allocated() - before
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        work()
    changes = [event for event in recorded.profiler.kineto_results.events() if event.name() == "[memory]"]
    held = peak = 0
    for change in sorted(changes, key=lambda event: event.start_ns()):
        held += change.nbytes()
        peak = max(peak, held)
    return peak
