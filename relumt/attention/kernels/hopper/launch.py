"""ReLU attention by the kernels for Hopper. Shapes: B batch, H heads, T queries, S keys, D head size.

    s_ij = q_i·k_j,   w_ij = ReLU(f_i s_ij + b)^p for visible keys, else 0,   out_i = Σ_j w_ij v_j

If there is a bias b, both f and b depend on the sentence alone.

Dropout is drawn in the forward pass only, which keeps one bit per pair. Its probability is rounded to a multiple of
1/128, and kept weights are scaled by the rounded one.
"""

import functools
from typing import Any

import torch
from torch import Tensor
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from relumt.attention.kernels.hopper import cached_launch
from relumt.attention.kernels.hopper.arguments import Dropout, KernelConfig, Scaling, Stored
from relumt.attention.kernels.hopper.cached_launch import MAX_KEPT
from relumt.attention.kernels.hopper.dkdv import backward_dkdv
from relumt.attention.kernels.hopper.dq import backward_dq
from relumt.attention.kernels.hopper.dq_stats import backward_dq_stats
from relumt.attention.kernels.hopper.forward import forward as forward_kernel
from relumt.attention.kernels.hopper.prepare import BLOCK, prepare_padding, row_terms, scale_rows
from relumt.attention.kernels.hopper.selection import DROPOUT_LEVELS
from relumt.attention.kernels.library import use_tensor_device
from relumt.attention.kernels.pointwise_params import Activation, exponent
from relumt.attention.kernels.pointwise_triton import new_gradients, new_outputs
from relumt.attention.kernels.triton_arguments import RowSums, strided

make_config = functools.cache(KernelConfig)  # making one takes 3 µs

THREE_WARPGROUPS = {"num_warpgroups": 3, "stages": 3, "registers": 160}
TWO_WARPGROUPS = {"stages": 3}
"""Configurations of the forward kernel. Three warpgroups are faster, but lack registers for two options or D = 128."""
DQ_CONFIG = {"stages": 3}
DQ_STATS_CONFIG = {"stages": 2}
DKDV_CONFIG = {64: {"stages": 2}, 128: {"block": BLOCK // 2, "stages": 4}}
DKDV_STATS_CONFIG = {64: {"block": BLOCK // 2, "stages": 3}, 128: {"block": BLOCK // 2, "stages": 4}}
"""Configurations of the other kernels. Those of `dkdv` are by D: gradients of k and v take D registers per thread.

Kernels for "stats" also compute powers of ReLU.
"""
RANGE_SCALE = {torch.bfloat16: 1.0, torch.float16: 1 / 128}
"""`layouts.range_scale`; outputs are divided by it."""

GluonType = {torch.bfloat16: gl.bfloat16, torch.float16: gl.float16}


@use_tensor_device
def run_forward(
    q: Tensor, k: Tensor, v: Tensor, factor: Tensor, bias: Tensor | None, key_mask: Tensor | None,
    key_bounds: Tensor | None, seed: Tensor | None, activation: Activation, is_causal: bool, dropout_p: float,
    row_sums: int, dtype: torch.dtype,
) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]:  # fmt: skip
    """Compute attention, with the arguments of `pointwise_triton.run_forward`; `selection.serves` must be True.

    Returns:
        The output [B, H, T, D]; Σ_j w_ij and Σ_j w_ij log w_ij before dropout, [B, H, T] float32 or None; one bit for
        each pair that dropout keeps (see `layouts`), [B·H·⌈S/128⌉, ⌈T/128⌉·64, 8, 2] int16, or None without dropout.
    """
    B, H, T, D = q.shape
    q, k, v = (with_strides_for_tma(x) for x in (q, k, v))
    factor = factor.expand(B, T)
    padding, *zeroed = prepare_padding(k, v, key_mask, key_bounds, bias is not None)
    output, weight_sum, w_log_w = new_outputs(q, v, row_sums, dtype)
    kept = new_kept(q, k) if dropout_p else None
    level = round(dropout_p * DROPOUT_LEVELS)
    threshold = (DROPOUT_LEVELS - level) * 0x01010101
    threshold -= threshold >> 31 << 32  # as int32
    scale = output_scale(dropout_p, q.dtype)
    has_registers = D == 64 and is_causal + (row_sums > 0) + (kept is not None) < 2  # for three warpgroups
    config = make_config(
        **THREE_WARPGROUPS if has_registers and (is_causal or three_are_faster(q)) else TWO_WARPGROUPS,
        D=D, is_causal=is_causal, is_padded=padding.mixed is not None, has_dropout=kept is not None, row_sums=row_sums,
        exponent=exponent(activation), is_shifted=bias is not None,
    )  # fmt: skip
    tiles = B * H * -(-T // (64 * config.num_warpgroups))
    launch(
        forward_kernel, tiles,
        describe(q, 64), *describe_all(BLOCK, k, v, *zeroed), padding, strided(output), Scaling(factor, bias, scale),
        *factor.stride(), bias_stride(bias, B), RowSums(weight_sum, w_log_w), Dropout(kept, seed, threshold), tiles,
        config,
    )  # fmt: skip
    return output, weight_sum, w_log_w, kept


@use_tensor_device
def run_backward(
    grad_output: Tensor, grad_weight_sum: Tensor | None, grad_w_log_w: Tensor | None, q: Tensor, k: Tensor, v: Tensor,
    factor: Tensor, bias: Tensor | None, key_mask: Tensor | None, key_bounds: Tensor | None, seed: Tensor | None,
    activation: Activation, is_causal: bool, dropout_p: float, kept: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Return the gradients of q, k and v for those of the results of `run_forward`; `kept` is the last of them."""
    B, H, T, D = q.shape
    S = k.shape[2]
    grad_q, grad_k, grad_v = new_gradients(q, k, v)
    q, k, v, grad_output = (with_strides_for_tma(x) for x in (q, k, v, grad_output.to(q.dtype)))
    padding, *zeroed = prepare_padding(k, v, key_mask, key_bounds, bias is not None)
    has_factor = factor.shape[1] == 1  # one for each sentence; others must multiply dO before it is summed over queries
    factor = factor.expand(B, -1)
    scale = output_scale(dropout_p, q.dtype)
    p, is_shifted = exponent(activation), bias is not None
    terms, row_grads = None, 0
    if grad_weight_sum is not None or grad_w_log_w is not None:
        row_grads = 1 if grad_w_log_w is None else 2
        terms_scale = 1 / (scale * RANGE_SCALE[q.dtype]) if has_factor else 1 / RANGE_SCALE[q.dtype]
        terms = row_terms(grad_weight_sum, grad_w_log_w, factor.expand(B, T), terms_scale, has_factor, p, is_shifted)
    if not has_factor:
        grad_output = scale_rows(grad_output, factor, scale, p)
    bits = new_bits(q, T, S) if terms is None and p == 1 else None
    flags = {"D": D, "is_causal": is_causal, "is_padded": padding.mixed is not None, "has_factor": has_factor}
    options = {"has_dropout": kept is not None, "row_sums": row_grads, "exponent": p, "is_shifted": is_shifted}
    scaling, f_b, bias_b = Scaling(factor, bias, scale), factor.stride(0), bias_stride(bias, B)
    config = make_config(**(DKDV_STATS_CONFIG if bits is None else DKDV_CONFIG)[D], **flags, **options)
    tiles = B * H * -(-S // BLOCK)
    launch(
        backward_dkdv, tiles, *describe_all(64, k, v, *zeroed), *describe_all(config.block, q, grad_output), padding,
        (strided(grad_k), strided(grad_v)), scaling, f_b, bias_b,
        Stored(None if kept is None else in_pairs(kept), bits, terms), tiles, config,
    )  # fmt: skip
    tiles = B * H * -(-T // BLOCK)
    if bits is not None:
        launch(
            backward_dq, tiles, describe(grad_output, 64), *describe_all(BLOCK, v, k, *zeroed[::-1]), padding,
            strided(grad_q), scaling, f_b, in_pairs(bits), tiles, make_config(**DQ_CONFIG, **flags),
        )  # fmt: skip
    else:
        launch(
            backward_dq_stats, tiles, *describe_all(64, q, grad_output), *describe_all(BLOCK, k, v, *zeroed), padding,
            strided(grad_q), scaling, f_b, bias_b, Stored(kept, None, terms), tiles,
            make_config(**DQ_STATS_CONFIG, **flags, **options),
        )  # fmt: skip
    return grad_q, grad_k, grad_v


def bias_stride(bias: Tensor | None, B: int) -> int | None:
    """Return the stride of the sentences of a bias [B or 1, 1]."""
    return None if bias is None else bias.expand(B, 1).stride(0)


def output_scale(dropout_p: float, dtype: torch.dtype) -> float:
    """Return what sums of kept weights are multiplied by besides the factor."""
    return 1 / (1 - round(dropout_p * DROPOUT_LEVELS) / DROPOUT_LEVELS) / RANGE_SCALE[dtype]


def three_are_faster(q: Tensor) -> bool:
    """Return whether three warpgroups beat two: they are 5% faster per query, but can leave programs without work."""
    B, H, T, _ = q.shape
    programs = num_multiprocessors(q.device)
    two, three = (-(-B * H * -(-T // (64 * n)) // programs) * n for n in (2, 3))
    return three < two * 1.05


def new_kept(q: Tensor, k: Tensor) -> Tensor:
    """Allocate one bit for each pair, with queries as rows; see `run_forward`."""
    return new_bits(q, k.shape[2], q.shape[2])


def new_bits(x: Tensor, columns: int, rows: int) -> Tensor:
    """Return room for one bit per pair of x's batch and heads: [B·H·⌈columns/128⌉, ⌈rows/128⌉·64, 8, 2] int16.

    No size is 1 for short sentences alone, because `torch.compile` would then compile twice.
    """
    blocks = x.shape[0] * x.shape[1] * -(-columns // 128)
    return torch.empty(blocks, -(-rows // 128) * 64, 8, 2, dtype=torch.int16, device=x.device)


def in_pairs(bits: Tensor) -> Tensor:
    """View two words of bits as one of int32."""
    return bits.view(torch.int32)[..., 0]


def with_strides_for_tma(x: Tensor) -> Tensor:
    """Return x, or a copy if TMA cannot read it: rows must be contiguous, and all strides multiples of 16 bytes."""
    is_readable = x.data_ptr() % 16 == 0 and are_readable(x.stride(), x.shape, x.element_size())
    return x if is_readable else x.clone(memory_format=torch.contiguous_format)


@functools.lru_cache(maxsize=MAX_KEPT)
def are_readable(strides: tuple[int, ...], shape: tuple[int, ...], element_size: int) -> bool:
    """Return whether TMA can read a tensor that begins at a multiple of 16 bytes."""
    steps = [stride * element_size for stride, size in zip(strides[:3], shape, strict=False) if size > 1]
    return strides[3] == 1 and all(step and step % 16 == 0 for step in steps)


def describe(x: Tensor, rows: int) -> TensorDescriptor:
    """Return a descriptor for TMA of x [B, H, n, D], which loads blocks of `rows` rows."""
    descriptor = TensorDescriptor.__new__(TensorDescriptor)  # a new one would be checked, and a copy takes as long
    vars(descriptor).update(vars(describe_like(x.stride(), x.shape, x.dtype, rows)), base=x)
    return descriptor


@functools.lru_cache(maxsize=MAX_KEPT)
def describe_like(strides: tuple[int, ...], shape: tuple[int, ...], dtype: torch.dtype, rows: int) -> TensorDescriptor:
    """Return the descriptor of tensors of a kind, with an empty one in their place."""
    steps = [stride if size > 1 else shape[3] for stride, size in zip(strides[:3], shape, strict=False)]
    block = [1, 1, rows, shape[3]]
    layout = gl.NVMMASharedLayout.get_default_for(block, GluonType[dtype])
    return TensorDescriptor(torch.empty(0, dtype=dtype), list(shape), [*steps, 1], block, layout)


def describe_all(rows: int, *tensors: Tensor | None) -> list[TensorDescriptor | None]:
    """Return a descriptor of each tensor, for None None."""
    return [None if x is None else describe(x, rows) for x in tensors]


@functools.cache
def num_multiprocessors(device: torch.device) -> int:
    """Return how many programs run at once, each on a multiprocessor of its own."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 132


def launch(kernel: Any, tiles: int, *arguments: Any) -> None:
    """Launch a persistent kernel."""
    device = arguments[0].base.device
    cached_launch.launch(kernel, min(num_multiprocessors(device), tiles), *arguments)
