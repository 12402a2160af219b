"""Timing by the clock of a GPU."""

import statistics
import time
from collections.abc import Callable

import torch

WARM_UPS, REPEATS = 3, 10
CYCLES_TO_QUEUE = 4_000_000
"""About 2 ms: more than Python takes to queue what is timed."""
CACHE_BYTES = 256 * 2**20
"""More than the cache of any GPU."""


def kernel_seconds(work: Callable[[], object], device: torch.device | str | None = None) -> float:
    """Return the median time of `work` by the clock of a GPU; on a CPU its wall time, measured once.

    Before each repeat the GPU's cache is overwritten, and the GPU waits until all of `work` is queued, so that the time
    Python takes to queue it does not count.

    Args:
        work: what is timed.
        device: where it computes; by default the current GPU, or the CPU if there is none.
    """
    device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    if device.type != "cuda":
        start_time = time.perf_counter()
        work()
        return time.perf_counter() - start_time
    with torch.cuda.device(device):
        cache = torch.empty(CACHE_BYTES, dtype=torch.int8, device=device)
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
