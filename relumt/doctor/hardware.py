"""Checks of the CPU and the GPUs, and of what computes attention there."""

import subprocess

from relumt.doctor import Check, try_each
from relumt.errors import describe_error
from relumt.process import usable_cores
from relumt.runs.environment import cpu_name, current_kernels, find_fp32_backend


def check_cpu() -> Check:
    """Name the CPU, its cores, and what it computes products of fp32 and bf16 with."""
    from relumt.plugin.cpu_products import has_fast_bf16

    products = "oneDNN" if find_fp32_backend() == "onednn" else "PyTorch's default backend"
    bf16 = "fast bf16 (PRECISION=bf16)" if has_fast_bf16() else "no fast bf16: neither AVX512-BF16 nor AMX"
    return Check("CPU", "ok", f"{cpu_name()}; usable cores: {usable_cores()}; fp32 products by {products}; {bf16}")


def check_gpus() -> Check:
    """List the GPUs that torch sees and that compute correctly; or say why torch sees none."""
    import torch

    driver = gpu_driver()
    if torch.cuda.is_available():
        gpus = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
        problems = [f"GPU {i}: {x}" for i, x in enumerate(try_each(multiply_on_gpu, range(len(gpus)))) if x]
        if problems:
            advice = "check nvidia-smi and the CUDA build of torch, or hide the GPU with CUDA_VISIBLE_DEVICES"
            return Check("GPUs", "error", "; ".join(problems), advice)
        listed = (f"{x.name}, {x.total_memory / 2**30:.0f} GiB, compute capability {x.major}.{x.minor}" for x in gpus)
        return Check("GPUs", "ok", f"{'; '.join(listed)}; driver {driver or 'unknown'}")
    if not driver:
        return Check("GPUs", "ok", "none that torch sees; training uses the CPU, and Triton kernels cannot be checked")
    reason = "is CUDA_VISIBLE_DEVICES set?"
    try:
        torch.cuda.init()
    except Exception as error:  # says what is wrong with the driver, or that torch is not built for CUDA
        reason = describe_error(error)
    detail = f"nvidia-smi lists a GPU (driver {driver}), but torch sees none: {reason}"
    return Check("GPUs", "warning", detail, "update the driver, or install a build of torch for its version of CUDA")


def gpu_driver() -> str:
    """Return the version of NVIDIA's driver, "" if nvidia-smi finds no GPU."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(command, capture_output=True, timeout=60, text=True, check=True).stdout.split()[0]
    except (OSError, subprocess.SubprocessError, IndexError):
        return ""


def multiply_on_gpu(index: int) -> str:
    """Return what is wrong with a product and its gradient on a GPU, "" if nothing is."""
    import torch

    x = torch.ones(64, 64, device=f"cuda:{index}", dtype=torch.float16, requires_grad=True)
    (grad,) = torch.autograd.grad((x @ x).sum(), x)
    return "" if (grad == 128).all() else "a product is wrong"


def check_kernel_setting() -> Check:
    """Say which implementation of attention training uses here, and why."""
    import torch

    from relumt.attention.kernels.dispatch import reason_against_device

    setting = current_kernels().setting
    name = f"RELUMT_KERNELS={setting}"
    if setting == "reference":
        return Check(name, "ok", "PyTorch operators, as asked for; Inhibitor on a CPU: Numba")
    if setting == "fused":
        return Check(name, "warning", "Triton without a self-check; very slow on a CPU", "unset RELUMT_KERNELS")
    if not torch.cuda.is_available():
        return Check(name, "ok", "PyTorch operators on the CPU, in blocks if there are many weights; Inhibitor: Numba")
    reason = reason_against_device(torch.device("cuda", 0))
    return Check(name, "ok", f"PyTorch operators: {reason}" if reason else "Triton where a kernel agrees with float64")


def find_gpus() -> list[str]:
    """Return one GPU of each model; none if torch sees none, or is broken."""
    try:
        import torch

        names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    except Exception:  # a check of `relumt doctor` says so
        return []
    return [f"cuda:{names.index(name)}" for name in dict.fromkeys(names)]
