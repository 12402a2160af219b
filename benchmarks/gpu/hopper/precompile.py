"""Fill a Triton cache for Hopper on a machine without a GPU, with what the jobs launch."""

import os
import time
from pathlib import Path
from unittest import mock

import triton
from calls import import_relumt, make_call
from jobs import CACHE_SETTINGS, KERNEL_JOBS, PRESENT_JOBS, TIMED_BATCH, WIDE_JOBS
from triton.backends.compiler import GPUTarget

HOPPER_DRIVER = mock.Mock(
    get_current_target=lambda: GPUTarget("cuda", 90, 32),
    get_current_device=lambda: 0,
    get_current_stream=lambda device: 0,
)
"""What Triton asks a driver before it compiles."""
SHARED_MEMORY = 227  # KiB, of Hopper GPUs


def precompile(cache: Path) -> None:
    """Compile the kernels with the options of all jobs."""
    cache.mkdir(parents=True, exist_ok=True)
    os.chdir(cache)
    os.environ.update(CACHE_SETTINGS)
    triton.runtime.driver.set_active(HOPPER_DRIVER)
    kernels = import_relumt("hopper.launch")
    run = triton.JITFunction.run

    def compile_only(kernel, *arguments, warmup, **options):
        run(kernel, *arguments, warmup=True, **options)  # its result would be launched the next time

    start = time.perf_counter()
    for job in [*KERNEL_JOBS, *WIDE_JOBS]:
        with mock.patch.object(triton.JITFunction, "run", compile_only):
            for n in (256, 2048):  # with two and with three warpgroups
                call = make_call(job, TIMED_BATCH, n, n, "meta")
                call.backward(kernels, call.forward(kernels)[3])
        print(f"{time.perf_counter() - start:5.1f} s: {job.config}", flush=True)
    pointwise_triton = import_relumt("pointwise_triton")
    for job in PRESENT_JOBS:
        with (
            mock.patch.object(triton.JITFunction, "run", compile_only),
            mock.patch.object(pointwise_triton, "shared_memory", lambda device: SHARED_MEMORY),
        ):
            call = make_call(job, 2, 256, 256, "meta")
            call.forward(pointwise_triton)
            pointwise_triton.run_backward(call.grad_out, *call.row_grads, *call.inputs)
        print(f"{time.perf_counter() - start:5.1f} s: {job.kernel}, {job.config}", flush=True)
    files = [path for path in Path().rglob("*") if path.is_file()]
    num_kernels = sum(path.suffix == ".cubin" for path in files)
    print(f"{num_kernels} kernels, {sum(path.stat().st_size for path in files) / 1e6:.1f} MB in {cache}")
