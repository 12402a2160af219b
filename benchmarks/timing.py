"""Timing, peak memory and files of results, which all benchmarks share."""

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from relumt.console import print_status
from relumt.doctor.hardware import cpu_name
from relumt.files import write_text_atomically
from relumt.papers.speeds import Ratio, median_ratio
from relumt.runs.environment import Device, Precision, describe_revision, find_device


class PairedRatio(Ratio):
    """A ratio with the number of pairs of times that it is from."""

    pairs: int


Speeds = dict[str, PairedRatio]
"""System → its speed relative to the baseline's."""


def synchronize() -> None:
    """Wait for the GPU if there is one."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def seconds(work: Callable[[], object]) -> float:
    """Return the wall time of `work`."""
    synchronize()
    start = time.perf_counter()
    work()
    synchronize()
    return time.perf_counter() - start


def alternating_times(works: dict[str, Callable[[], object]], repeats: int) -> dict[str, list[float]]:
    """Return name → seconds of each repeat after a warm-up; the order of the works alternates."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for repeat in range(repeats + 1):
        for name in list(works)[:: 1 if repeat % 2 else -1]:
            elapsed = seconds(works[name])
            if repeat:  # the first one is a warm-up
                times[name].append(elapsed)
    return times


def relative_speeds(baseline: str, times: dict[str, list[float]]) -> Speeds:
    """Divide the baseline's times by each system's, pair by pair; above 1 is faster than the baseline."""
    speeds: Speeds = {}
    for name, measured in times.items():
        ratios = [reference / own for own, reference in zip(measured, times[baseline], strict=True)]
        speeds[name] = {"pairs": len(ratios), **median_ratio(ratios)}
    return speeds


def benchmark_device(precision: Precision | None) -> Device:
    """Return the single device to measure on, with the precision of training; None for what scripts/ choose."""
    return replace(find_device(precision), count=1)


def print_origin(threads: int | None = None) -> None:
    """Print the machine, the number of threads (by default torch's) and the revision: where a copied table is from."""
    name = torch.cuda.get_device_name() if torch.cuda.is_available() else cpu_name()
    threads = threads or torch.get_num_threads()
    print(f"\nMachine: {name}, {threads} thread{'s' if threads > 1 else ''}; {describe_revision()}")


def write_results(path: Path, what: str, baseline: str, device: Device, results: dict[str, Any]) -> None:
    """Write results as JSON: what was measured, on which device, relative to what, and the revision."""
    described = {"what": what, "baseline": baseline, "device": str(device), "revision": describe_revision()}
    write_text_atomically(path, json.dumps(described | results, indent=2) + "\n")


def is_up_to_date(path: Path | None, inputs: dict[str, Any], device: Device) -> bool:
    """Return, and say, whether `path` has results for these inputs on this kind of device.

    inputs: what `write_results` was given as the results' "inputs", such as checkpoints and settings.
    """
    results = json.loads(path.read_text(encoding="utf-8")) if path and path.is_file() else {}
    up_to_date = (results.get("inputs"), results.get("device")) == (inputs, str(device))
    if up_to_date:
        print_status(f"{path}: already measured")
    return up_to_date


def peak_bytes(work: Callable[[], object]) -> int:
    """Return the largest amount of memory that tensors made by `work` held at a time."""
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        work()
        synchronize()
        return torch.cuda.max_memory_allocated() - before
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        work()
    changes = [event for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"]
    held = peak = 0
    for change in sorted(changes, key=lambda event: event.start_ns()):
        held += change.nbytes()
        peak = max(peak, held)
    return peak
