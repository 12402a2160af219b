"""Choose between Triton, blocked and PyTorch implementations by device, dtype, shape and need.

The environment variable RELUMT_KERNELS restricts it:

    auto          (default) Triton on a GPU after a self-check, blocks on a CPU if there are many weights, and the
                  reference for what they lack
    experimental  as auto, with kernels that have run too little on a GPU: hopper/ for long calls of ReLU in half
                  precision on H100 and H200, and inhibitor_triton_fp16
    fused         Triton without a self-check; on a CPU, in its interpreter (TRITON_INTERPRET=1): slow, for tests
    reference     no Triton and no blocks; the Inhibitor still uses Numba on a CPU and cdist on a GPU, unless
                  --inhibitor-implementation names another

Under `torch.compile` the kernels serve the same calls, as operators of the graph (`*_operator.py`); where cdist would
serve the Inhibitor, naive does, which Inductor fuses. The choice reads lengths on a CPU only, so that one graph of a
GPU serves all. RELUMT_KERNELS is read and the self-check is asked while PyTorch traces (`checked_calls.py`). Exported
calls and those under `torch.func` always get the reference (for the Inhibitor: naive).

When Triton is asked for and cannot serve a call, the reason is logged once.
"""

import functools
import importlib.util
import logging
import os
from collections.abc import Callable

import torch
from torch import Tensor
from torch._compile import _disable_dynamo  # torch.compiler.disable would import torch._dynamo now: 2 seconds

from relumt.attention.kernels import (
    inhibitor_cdist,
    inhibitor_naive,
    inhibitor_numba,
    pointwise_blocked,
    sparse_adasplash,
)
from relumt.attention.kernels.checked_calls import PointwiseResult, attend_pointwise, run_checked
from relumt.attention.kernels.self_check_sparse import SparseConfig
from relumt.attention.mask import AttentionMask
from relumt.attention.transforms import (
    constant_in_compiled_code,
    is_exporting,
    is_in_torch_func,
    is_traced,
    needs_pytorch_operators,
)
from relumt.process import KERNELS_VARIABLE, kernel_choice, wants_triton

logger = logging.getLogger(__name__)

DTYPES = (torch.float16, torch.bfloat16, torch.float32)
MAX_HEAD_DIM = 128
MAX_FLOAT32_HEAD_DIM = 64
MIN_BLOCKED_WEIGHTS = 1 << 18
"""Minimum number of weights per head (T·S) for computing in blocks on a CPU. Blocks need less memory; with 512² weights
they take 0.6 (causal) to 1.15 of the time of whole tensors, from 1,024² on 0.2 to 0.8."""
RECOMPUTE_THRESHOLD = 1 << 24
"""From this number of weights on, B·H·T·S, the backward pass recomputes the weights of a call instead of keeping them.

They would take 64 MiB per call in float32, and a model would keep those of dozens of calls.
"""
MAX_EXPLICIT_SOFTMAX_WEIGHTS = 1 << 14
"""Weights per head (T·S) up to which a CPU trains softmax faster with explicit weights than with PyTorch's fused
attention, whose backward pass is slow for short sentences (docs/results/attention_speed.md)."""
MIN_PACKED_WEIGHTS = 65
"""Minimum number of weights per head (T·S) at which PyTorch's fused attention packs fp32 operands for oneDNN, which is
up to 6 times slower than explicit weights below MAX_EXPLICIT_SOFTMAX_WEIGHTS."""
MIN_CAPABILITY = (8, 0)
"""Compute capability of Ampere; older GPUs have too little shared memory."""


def can_use_triton(q: Tensor, k: Tensor, v: Tensor, mask: AttentionMask, *caller_reasons: str) -> bool:
    """Return whether Triton serves a call, and log once why not if it should have.

    Args:
        q: [B, H, T, D].
        k, v: [B, H, S, D].
        mask: what each query may attend to.
        caller_reasons: the caller's own reasons against Triton; empty strings are no reasons.
    """
    if needs_pytorch_operators() or not _is_triton_wanted(q.device):
        return False
    reasons = (
        *caller_reasons,
        _reason_for_reference(q, k, v, mask),
        f"the head size {q.shape[-1]} exceeds {MAX_HEAD_DIM}" if q.shape[-1] > MAX_HEAD_DIM else "",
        "a tensor is empty" if 0 in (*q.shape, *k.shape) else "",
    )
    return _has_no_reason(q.device, *reasons)


@constant_in_compiled_code
def _is_triton_wanted(device: torch.device) -> bool:
    return wants_triton(kernel_choice(), device.type)


@constant_in_compiled_code
def _has_no_reason(device: torch.device, *reasons: str) -> bool:
    """Return whether neither these reasons nor the device speak against Triton; log once what does."""
    reason = next(filter(None, (*reasons, reason_against_device(device))), "")
    if reason:
        _warn_once(f"no fused attention: {reason}; using PyTorch operators")
    return not reason


def reason_against_device(device: torch.device) -> str:
    """Return why the Triton kernels do not run on a device, "" if they do."""
    if not _is_installed("triton"):
        return "Triton is not installed"
    if device.type != "cuda":
        return "" if os.environ.get("TRITON_INTERPRET") == "1" else "there is no GPU, and TRITON_INTERPRET is not 1"
    if torch.version.hip is not None:
        if kernel_choice() == "fused":
            return ""
        name = torch.cuda.get_device_name(device)
        problem = "is an AMD GPU, whose shared memory is too small for some kernels"
        return f"{name} {problem}; {KERNELS_VARIABLE}=fused tries them"
    major, minor = torch.cuda.get_device_capability(device)
    if (major, minor) < MIN_CAPABILITY:
        name, needed = torch.cuda.get_device_name(device), ".".join(map(str, MIN_CAPABILITY))
        return f"{name} has compute capability {major}.{minor}, and the kernels need {needed} (Ampere) or later"
    return ""


def _reason_for_reference(q: Tensor, k: Tensor, v: Tensor, mask: AttentionMask) -> str:
    """Return why the reference must be used with this mask and these dtypes, "" if a kernel can be used."""
    if mask.attn_mask is not None:
        return "attn_mask is set"
    if mask.bias is not None:
        return "a bias is added to scores"
    if q.dtype not in DTYPES or not q.dtype == k.dtype == v.dtype:
        return f"q, k and v are {q.dtype}, {k.dtype} and {v.dtype}"
    return ""


@functools.cache
def _is_installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


@functools.cache
def _warn_once(message: str) -> None:
    logger.warning(message)


def select_pointwise_kernel(
    q: Tensor, k: Tensor, v: Tensor, mask: AttentionMask, need_weights: bool, exceeds_float16: bool
) -> Callable[..., PointwiseResult | None] | None:
    """Return the function that serves a call; None for the reference.

    It has the arguments of `pointwise_operator.attend` but the last, and returns None if it turns out that the
    reference must serve the call after all.

    exceeds_float16: whether weights, or gradients of a norm that follows, can exceed float16's range.
    """
    D = q.shape[-1]
    too_wide = q.is_cuda and q.dtype == torch.float32 and D > MAX_FLOAT32_HEAD_DIM
    reasons = (
        "the weights are needed" if need_weights else "",
        f"the head size {D} exceeds {MAX_FLOAT32_HEAD_DIM} in float32: too few registers" if too_wide else "",
        "values are not of the keys' size" if v.shape != k.shape else "",
        "weights or gradients can overflow float16; use bfloat16"
        if exceeds_float16 and q.dtype == torch.float16
        else "",
    )
    if can_use_triton(q, k, v, mask, *reasons):
        return attend_pointwise
    if needs_pytorch_operators() or q.device.type != "cpu" or need_weights or not _are_blocks_wanted():
        return None
    if q.shape[2] * k.shape[2] < MIN_BLOCKED_WEIGHTS or _reason_for_reference(q, k, v, mask):
        return None
    return pointwise_blocked.attend


@constant_in_compiled_code
def _are_blocks_wanted() -> bool:
    return kernel_choice() in ("auto", "experimental")


def has_many_weights(q: Tensor, k: Tensor) -> bool:
    """Return whether the weights of q [B, H, T, D] and k [B, H, S, D] are too many to keep for the backward pass.

    False in exported programs, which may serve any length.
    """
    B, H, T, _ = q.shape  # numel() would make constants of sizes that torch.export leaves open
    return not is_exporting() and B * H * T * k.shape[2] >= RECOMPUTE_THRESHOLD


def prefers_explicit_softmax(q: Tensor, k: Tensor, v: Tensor, dropout_p: float) -> bool:
    """Return whether explicit weights are the faster softmax when only the output is needed.

    Always under `torch.func`, because PyTorch's attention has no forward-mode derivatives; otherwise never on a GPU.
    On a CPU always with dropout, for which PyTorch's attention computes explicit weights itself, in more passes;
    otherwise for a single query, as in the decoder's self-attention of a beam search, and for short
    sentences if there will be a backward pass, or if the fused forward pass would pack its operands.
    """
    if is_in_torch_func():
        return True
    if q.device.type != "cpu" or is_exporting():  # an exported program may serve any length
        return False
    if dropout_p or q.shape[2] == 1:
        return True
    weights_per_head = q.shape[2] * k.shape[2]
    if weights_per_head > MAX_EXPLICIT_SOFTMAX_WEIGHTS or has_many_weights(q, k):
        return False
    needs_backward = torch.is_grad_enabled() and any(x.requires_grad for x in (q, k, v))
    is_packed = weights_per_head >= MIN_PACKED_WEIGHTS and q.dtype == torch.float32 and _onednn_computes_fp32()
    return needs_backward or is_packed


@constant_in_compiled_code
def _onednn_computes_fp32() -> bool:
    """Return whether oneDNN computes products of fp32 on a CPU (`relumt.plugin.cpu_products`)."""
    return torch.get_float32_matmul_precision() != "highest"


def project_sparse(scores: Tensor, alpha: float, out_of_support: float) -> Tensor | None:
    """Return sparsemax (α = 2) or 1.5-entmax (α = 1.5) by AdaSplash; None if the `entmax` package is to compute it.

    The arguments are those of `sparse_adasplash.project`.
    """
    if not sparse_adasplash.serves(scores.device, scores.dtype):
        return None
    return _project_sparse_by_adasplash(scores, alpha, out_of_support)


@_disable_dynamo
def _project_sparse_by_adasplash(scores: Tensor, alpha: float, out_of_support: float) -> Tensor | None:
    device = scores.device
    if not (_is_triton_wanted(device) and scores.numel()) or reason_against_device(device):
        return None
    config = SparseConfig(alpha, sparse_adasplash.padded_size(scores.shape[-1]))
    return run_checked(device, config, lambda: sparse_adasplash.project(scores, alpha, out_of_support))


def fused_inhibitor_without_triton(device: torch.device) -> Callable[..., Tensor]:
    """Return the Inhibitor's implementation where its Triton kernels cannot be used.

    Numba's loops serve the CPU only. Of the others, only the equation itself has forward-mode derivatives; Inductor
    fuses it, and then it has no T·S·D tensor either.
    """
    if device.type == "cpu" and not needs_pytorch_operators() and _has_numba():
        return inhibitor_numba.attend
    return inhibitor_naive.attend if is_traced() else inhibitor_cdist.attend


@constant_in_compiled_code
def _has_numba() -> bool:
    """Return whether Numba is installed, and log once if it is not."""
    if not _is_installed("numba"):
        _warn_once("the Inhibitor is computed by cdist, which is slower than Numba; run pip install numba")
    return _is_installed("numba")
