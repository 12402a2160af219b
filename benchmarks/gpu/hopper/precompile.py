"""Fill a Triton cache for Hopper on a machine without a GPU, with what `kernel_jobs` launches."""

import os
import time
from pathlib import Path

import triton
from jobs import CACHE_SETTINGS, KERNEL_JOBS, TIMED_SHAPES, VERIFIED_SHAPES
from launches import launch, make_tensors
from triton.backends.compiler import GPUTarget


class HopperDriver:
    """What Triton asks a driver before it compiles."""

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0


def precompile(cache: Path) -> None:
    """Compile all kernels for all shapes; shapes for which Triton would compile the same take no time."""
    cache.mkdir(parents=True, exist_ok=True)
    os.chdir(cache)
    os.environ.update(CACHE_SETTINGS)
    triton.runtime.driver.set_active(HopperDriver())
    start = time.perf_counter()
    for job in KERNEL_JOBS:
        for shape in VERIFIED_SHAPES + TIMED_SHAPES:
            launch(job, make_tensors(*shape, "meta"), only_compile=True)
        print(f"{time.perf_counter() - start:5.1f} s: {job.kernel} {job.label}", flush=True)
    files = [path for path in Path().rglob("*") if path.is_file()]
    kernels = sum(path.suffix == ".cubin" for path in files)
    print(f"{kernels} kernels, {sum(path.stat().st_size for path in files) / 1e6:.1f} MB in {cache}")
