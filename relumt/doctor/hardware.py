"""Checks of the CPU, the GPUs and the compiler that builds code for them."""

import os
import platform
import re
import shutil
import sysconfig
import tempfile
from pathlib import Path

from relumt.doctor.check import Check, ChildFailedError, run_command, run_python
from relumt.errors import describe_error
from relumt.process import usable_cores
from relumt.runs.environment import CPU_INFO, find_fp32_backend

NO_GPU = "none that torch sees; training uses the CPU, and fused kernels cannot be checked"

COMPUTE_ON_EVERY_GPU = """
import torch
for index in range(torch.cuda.device_count()):
    for dtype in (torch.float32, torch.float16):
        x = torch.ones(64, 64, device=f"cuda:{index}", dtype=dtype, requires_grad=True)
        (x @ x).sum().backward()
        assert (x.grad == 128).all(), f"GPU {index} computes wrong products in {dtype}"
"""


def check_cpu() -> Check:
    """Name the CPU, its cores, and what it computes products of fp32 and bf16 with."""
    from relumt.cpu_products import has_fast_bf16

    cores = usable_cores()
    products = {"onednn": "oneDNN", "default": "PyTorch's default backend"}[find_fp32_backend()]
    bf16 = "fast bf16 (PRECISION=bf16)" if has_fast_bf16() else "no fast bf16: neither AVX512-BF16 nor AMX"
    several = "s" if cores > 1 else ""
    return Check("CPU", "ok", f"{cpu_name()}, {cores} core{several}; fp32 products by {products}; {bf16}")


def cpu_name() -> str:
    """Return the name that Linux gives the processor, elsewhere its architecture.

    Virtual machines may report one name for several generations; family, model and stepping tell them apart.
    """
    text = CPU_INFO.read_text(encoding="utf-8") if CPU_INFO.is_file() else ""
    values = dict(re.findall(r"^(model name|cpu family|model|stepping)\s*: (.+)$", text, re.MULTILINE))
    if len(values) < 4:
        return values.get("model name", platform.machine())
    return "{model name} (family {cpu family}, model {model}, stepping {stepping})".format_map(values)


def check_gpus() -> Check:
    """List the GPUs that torch sees, with memory, compute capability and driver; or say why it sees none."""
    import torch

    driver = gpu_driver()
    if not torch.cuda.is_available():
        return _check_missing_gpus(driver)
    found = []
    for index in range(torch.cuda.device_count()):
        gpu = torch.cuda.get_device_properties(index)
        memory = f"{gpu.total_memory / 2**30:.0f} GiB"
        found.append(f"{index}: {gpu.name}, {memory}, compute capability {gpu.major}.{gpu.minor}")
    return Check("GPUs", "ok", f"{'; '.join(found)}; driver {driver or 'unknown'}")


def _check_missing_gpus(driver: str) -> Check:
    import torch

    if not driver:
        return Check("GPUs", "ok", NO_GPU)
    if torch.version.cuda is None:
        detail = f"nvidia-smi lists a GPU (driver {driver}), but torch is not built for CUDA"
        return Check("GPUs", "warning", detail, "install a CUDA build of torch; until then, training uses the CPU")
    try:
        torch.cuda.init()
        reason = "torch sees no GPU; is CUDA_VISIBLE_DEVICES set?"
    except Exception as error:  # the message tells what is wrong with the driver
        reason = describe_error(error)
    detail = f"nvidia-smi lists a GPU (driver {driver}), but torch cannot use it: {reason}"
    return Check("GPUs", "warning", detail, "update the driver, or install torch for an older CUDA")


def gpu_driver() -> str:
    """Return the version of NVIDIA's driver, "" if nvidia-smi finds no GPU."""
    try:
        listed = run_command(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"], time_limit=60)
    except ChildFailedError:
        return ""
    return (listed.splitlines() or [""])[0].strip()


def check_gpu_arithmetic() -> Check:
    """Check that every GPU computes products and their gradients, in a process of its own."""
    import torch

    name = "GPU arithmetic"
    if not torch.cuda.is_available():
        return Check(name, "ok", "not checked: no GPU")
    try:
        run_python(COMPUTE_ON_EVERY_GPU)
    except ChildFailedError as error:
        advice = "check nvidia-smi and the CUDA build of torch, or hide the GPU with CUDA_VISIBLE_DEVICES"
        return Check(name, "error", str(error), advice)
    return Check(name, "ok", f"correct on {torch.cuda.device_count()} GPU(s), in float32 and float16")


def check_c_compiler() -> Check:
    """Check that Triton's C compiler works: $CC, else gcc, else clang. Triton builds a module of Python with it."""
    import torch

    name = "C compiler"
    compiler = os.environ.get("CC", shutil.which("gcc") or shutil.which("clang") or "")
    problem = _compile_error(compiler) if compiler else "no $CC, gcc or clang"
    if not problem:
        return Check(name, "ok", f"{compiler}, for Triton on a GPU")
    if not torch.cuda.is_available():
        return Check(name, "ok", f"{problem}; only Triton on a GPU needs one")
    advice = "install gcc and Python's headers (python3-dev), or set CC; until then, attention uses PyTorch operators"
    return Check(name, "warning", problem, advice)


def _compile_error(compiler: str) -> str:
    """Return why a compiler does not build a module of Python, "" if it does."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "module.c")
        path.write_text("#include <Python.h>\nint answer(void) { return 42; }\n", encoding="utf-8")
        include = f"-I{sysconfig.get_config_var('INCLUDEPY')}"
        command = [compiler, str(path), "-shared", "-fPIC", include, "-o", f"{path}.so"]
        try:
            run_command(command, time_limit=120)
        except ChildFailedError as error:
            return f"{compiler} does not compile a module of Python: {error}"
    return ""
