"""Call the Triton kernels if the self-check allows it.

`torch.compile` traces these calls, where lengths are open. It then asks for every kind of call that a length can lead
to. What eager calls have not checked yet is checked while it traces, on real tensors; a launch that fails later, when
the compiled code runs, raises its error.
"""

import functools
from collections.abc import Callable
from dataclasses import replace
from operator import index  # makes a constant of a size that torch.compile leaves open; int() does not
from typing import Any

import torch
from torch import Tensor

from relumt.attention.kernels import inhibitor_operator, pointwise_operator
from relumt.attention.kernels.hopper.selection import are_wanted, can_compute, serves
from relumt.attention.kernels.pointwise_params import Activation, PointwiseParams
from relumt.attention.kernels.self_check import CheckedConfig, Returned, verdicts
from relumt.attention.kernels.self_check_inhibitor import InhibitorConfig
from relumt.attention.kernels.self_check_pointwise import PointwiseConfig
from relumt.attention.mask import AttentionMask
from relumt.attention.transforms import constant_in_compiled_code
from relumt.process import kernel_choice

PointwiseResult = tuple[Tensor, Tensor | None, Tensor | None]
"""The output [B, H, T, D], and both row sums, [B, H, T] or None."""


def attend_pointwise(
    q: Tensor, k: Tensor, v: Tensor, params: PointwiseParams, key_mask: Tensor | None, is_causal: bool,
    dropout_p: float, row_sums: int, dtype: torch.dtype,
) -> PointwiseResult | None:  # fmt: skip
    """Call `pointwise_operator.attend`; return None if no kernels can be used on this GPU or for this dropout.

    They scale the kept weights by 1/(1 − p), which is infinite if no weight is kept.
    """
    if dropout_p == 1:
        return None
    arguments = (params, key_mask, is_causal, dropout_p, row_sums, dtype)
    if not torch.compiler.is_compiling():
        for module in (["hopper.launch"] if serves(q, k, params, dropout_p) else []) + ["pointwise_triton"]:
            attend = functools.partial(pointwise_operator.attend, q, k, v, *arguments, module)
            result = run_checked(q.device, PointwiseConfig.from_call(q, k, *arguments, module), attend)
            if result is not None:
                return result
        return None
    options = (
        params.bias is not None, key_mask is not None, is_causal, row_sums, _is_positive(dropout_p),
        _is_positive(params.factor.shape[1] - 1),
    )  # fmt: skip
    kernel = _kernel_of_compiled_calls(q.device, params.activation, q.dtype, dtype, index(q.shape[3]), *options)
    return None if kernel is None else pointwise_operator.attend(q, k, v, *arguments, kernel)


@constant_in_compiled_code
def _kernel_of_compiled_calls(
    device: torch.device, activation: Activation, dtype: torch.dtype, output_dtype: torch.dtype, head_dim: int,
    has_bias: bool, *options: Any,
) -> str | None:  # fmt: skip
    """Return the module that computes these calls, whatever the length; None if no kernels can be used."""
    if kernel_choice() == "fused":
        return "pointwise_triton"
    configs = PointwiseConfig.list_by_length(activation, dtype, output_dtype, head_dim, has_bias, *options)
    if not all(verdicts(device).allows(config) for config in configs):
        return None
    if are_wanted(device) and can_compute(activation, has_bias, configs[-1].has_factor_per_query, dtype, head_dim):
        long = replace(configs[-1], kernel="hopper.launch")
        return "hopper.by_length" if verdicts(device).allows(long) else "pointwise_triton"
    return "pointwise_triton"


def _is_positive(x: float) -> bool:
    """Return whether x ≥ 0 is not 0, in compiled code as a constant: bool() leaves it open there."""
    return True if x else False  # noqa: SIM210


def run_checked(device: torch.device, config: CheckedConfig, attend: Callable[[], Returned]) -> Returned | None:
    """Return what `attend` returns; None if the self-check rejects the configuration."""
    return attend() if kernel_choice() == "fused" else verdicts(device).run(config, attend)


def attend_inhibitor(
    q: Tensor, k: Tensor, v: Tensor, gamma: float, shift: Tensor, mask: AttentionMask, dropout_p: float, half: bool
) -> Tensor | None:
    """Call the kernels of `inhibitor_triton`, in float32 if half precision cannot be used on this GPU.

    Return None if neither can.
    """
    half = half and _may_use_half()
    call = (q, k, v, gamma, shift, mask, None, dropout_p, half, "inhibitor_triton")
    attend = functools.partial(inhibitor_operator.attend, *call)
    if torch.compiler.is_compiling():
        options = (mask.key_mask is not None, mask.is_causal, _is_positive(dropout_p))
        is_allowed = _can_compile_inhibitor(q.device, half, index(q.shape[3]), index(v.shape[3]), *options)
        output = attend() if is_allowed else None
    else:
        output = run_checked(q.device, InhibitorConfig.from_call(q, v, mask, dropout_p, half), attend)
    if output is None and half:
        return attend_inhibitor(q, k, v, gamma, shift, mask, dropout_p, False)
    return output


@constant_in_compiled_code
def _may_use_half() -> bool:
    return kernel_choice() in ("experimental", "fused")


@constant_in_compiled_code
def _can_compile_inhibitor(device: torch.device, half: bool, head_dim: int, value_dim: int, *options: bool) -> bool:
    """Return whether kernels can be used for these options."""
    config = InhibitorConfig(half, head_dim, value_dim, *options)
    return kernel_choice() == "fused" or verdicts(device).allows(config)
