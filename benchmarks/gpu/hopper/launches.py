"""The tensors that the kernels read and write, and how the kernels are launched."""

from dataclasses import dataclass
from typing import Any

import dkdv_kernel
import dq_kernel
import forward_kernel
import torch
from jobs import DROPOUT, Job
from torch import Tensor
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

MULTIPROCESSORS = 132  # of an H100 SXM and an H200
BLOCK = 128
CONFIGS = {
    "3wg": {"NWG": 3, "BN": BLOCK, "STAGES": 3, "CREGS": 160},
    "2wg": {"NWG": 2, "BN": BLOCK, "STAGES": 3, "CREGS": 240},
}
DKDV_CONFIG = {"NWG": 2, "BT": BLOCK, "STAGES": 2, "CREGS": 240}


@dataclass
class Tensors:
    """What the kernels read and write, with n queries and n keys.

    Attributes:
        q, k, v, grad_out, out, grad_q, grad_k, grad_v: [B, H, n, D] bfloat16, transposed from [B, n, H, D].
        scale: f = 1/√(D n/2), which is the factor of all weights for γ = 1.
        factor: f [B, n] float32.
        weight_sum, w_log_w: [B, H, n] float32.
        bits: [B*H, n/128, n/2, 8, 2] int16.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    grad_out: Tensor
    out: Tensor
    grad_q: Tensor
    grad_k: Tensor
    grad_v: Tensor
    scale: float
    factor: Tensor
    weight_sum: Tensor
    w_log_w: Tensor
    bits: Tensor

    def outputs(self, job: Job) -> dict[str, Tensor]:
        """Return name → what a kernel writes."""
        if job.kernel == "dq":
            return {"dq": self.grad_q}
        if job.kernel == "dkdv":
            return {"dk": self.grad_k, "dv": self.grad_v} | ({"bits": self.bits} if job.writes_bits else {})
        stats = {"Σw": self.weight_sum, "Σw log w": self.w_log_w} if job.row_stats else {}
        return {"out": self.out} | stats | ({"kept": self.bits} if job.rounds else {})


def make_tensors(B: int, H: int, n: int, D: int, device: str) -> Tensors:
    """Return random inputs, random bits, and outputs."""
    inputs = [torch.randn(B, n, H, D, device=device, dtype=torch.bfloat16).transpose(1, 2) for _ in range(4)]
    scale = (D * n / 2) ** -0.5
    return Tensors(
        *inputs,
        *(torch.empty_like(x) for x in inputs),
        scale,
        torch.full((B, 1), scale, device=device).expand(B, n),
        *(torch.empty(B, H, n, device=device) for _ in range(2)),
        torch.randint(-(2**15), 2**15, (B * H, n // BLOCK, n // 2, 8, 2), device=device, dtype=torch.int16),
    )


def describe(x: Tensor, rows: int) -> TensorDescriptor:
    """Return a descriptor for TMA of x [B, H, n, D], which loads blocks of `rows` rows."""
    block = [1, 1, rows, x.shape[3]]
    layout = gl.NVMMASharedLayout.get_default_for(block, gl.bfloat16)
    return TensorDescriptor(x, list(x.shape), list(x.stride()), block, layout)


def launch(job: Job, x: Tensors, only_compile: bool = False) -> None:
    """Launch a job's kernel, or only compile it."""
    B, H, n, D = x.q.shape
    constants: dict[str, Any] = (DKDV_CONFIG if job.kernel == "dkdv" else CONFIGS[job.config]) | {"D": D}
    tiles = B * H * -(-n // (64 * constants["NWG"]))
    sizes = [H, n, n, tiles]
    if job.kernel == "forward":
        kernel = forward_kernel.forward
        descriptors = [describe(x.q, 64), describe(x.k, BLOCK), describe(x.v, BLOCK)]
        outputs = [x.out, *x.out.stride()[:3], x.factor, *x.factor.stride(), x.weight_sum, x.w_log_w, x.bits]
        threshold = (128 - round(DROPOUT * 128)) * 0x01010101
        arguments = [*descriptors, *outputs, 0, 12345, threshold, *sizes]
        constants |= {"ROW_STATS": job.row_stats, "CUBIC": job.cubic, "DROPOUT": bool(job.rounds)}
        constants["ROUNDS"] = job.rounds
    elif job.kernel == "dq":
        kernel = dq_kernel.backward_dq
        descriptors = [describe(x.grad_out, 64), describe(x.v, BLOCK), describe(x.k, BLOCK)]
        words = x.bits.view(torch.int32)[..., 0]  # [B*H, n/128, n/2, 8]
        arguments = [*descriptors, x.grad_q, *x.grad_q.stride()[:3], x.factor, *x.factor.stride(), words, *sizes]
        constants["BT"] = BLOCK
    else:
        kernel = dkdv_kernel.backward_dkdv
        descriptors = [describe(x.k, 64), describe(x.v, 64), describe(x.q, BLOCK), describe(x.grad_out, BLOCK)]
        gradients = [x.grad_k, *x.grad_k.stride()[:3], x.grad_v, *x.grad_v.stride()[:3]]
        arguments = [*descriptors, *gradients, x.factor, x.factor.stride(0), x.bits, *sizes]
        constants["BITS"] = job.writes_bits
    grid = (min(MULTIPROCESSORS, tiles),)
    if only_compile:
        kernel.warmup(*arguments, grid=grid, num_warps=4, **constants)
    else:
        kernel[grid](*arguments, num_warps=4, **constants)
