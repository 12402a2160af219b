"""What RELUMT_KERNELS selects on this machine."""

import os

from relumt.doctor.check import Check
from relumt.runs.environment import current_kernels


def check_kernel_setting() -> Check:
    """Say which implementation of attention training uses here, and why."""
    import torch

    setting = current_kernels().setting
    name = f"RELUMT_KERNELS={setting}"
    if setting == "reference":
        return Check(name, "ok", "PyTorch operators, as asked for; Inhibitor on a CPU: Numba")
    if not torch.cuda.is_available():
        if setting == "fused":
            return Check(name, "warning", "Triton's interpreter on a CPU, which is slow", "unset RELUMT_KERNELS")
        return Check(name, "ok", "PyTorch operators on the CPU, in blocks if there are many weights; Inhibitor: Numba")
    if os.environ.get("TRITON_INTERPRET") == "1":
        detail = "Triton's interpreter, because TRITON_INTERPRET is 1: thousands of times slower than a GPU"
        return Check(name, "warning", detail, "unset TRITON_INTERPRET")
    if setting == "fused":
        detail = "Triton, even where a kernel would fail its self-check"
        return Check(name, "warning", detail, "unset RELUMT_KERNELS")
    from relumt.attention.kernels.dispatch import reason_against_device

    if reason := reason_against_device(torch.device("cuda", 0)):
        return Check(name, "ok", f"PyTorch operators: {reason}")
    return Check(name, "ok", "Triton where a kernel agrees with float64, PyTorch operators elsewhere")
