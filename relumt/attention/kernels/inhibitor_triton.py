"""The Inhibitor in Triton: no T·S tensor in either direction.

Shapes: B batch, H heads, T queries, S keys, D head size, V value size.

    r_ij = Σ_d |q_id − k_jd|/γ − α,    z_ij = r⁺_ij,    out_iv = Σ_j (v_jv − z_ij)⁺

A program is one warp. It holds a block of queries as [dimensions, queries], so that a thread has several dimensions of
several queries and a distance is a sum within the thread plus two exchanges between threads; it visits keys one by one.
If there are few queries, the keys are split among several programs, whose partial results are then summed. The backward
pass computes r again: one kernel loops over keys for the gradients of q and α, one over queries for those of k and v.

Everything is computed in float32, except for a forward pass that may use half precision (`inhibitor_triton_fp16`).
"""

import os
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
import triton
from torch import Tensor

from relumt.attention.kernels import inhibitor_triton_fp16, inhibitor_triton_fp32
from relumt.attention.kernels.key_bounds import key_bytes
from relumt.attention.kernels.library import use_tensor_device
from relumt.attention.kernels.triton_arguments import (
    Dropout,
    InhibitorKernelConfig,
    Padding,
    Scaling,
    next_power_of_2,
)

BLOCK = {"forward": 32, "backward": 16}
"""Queries or keys that a program holds; as many as fit into registers with D = V = 64."""

TARGET_PROGRAMS = 4096
"""As many warps keep a GPU busy; a call with fewer splits the other side."""

MIN_SPLIT_SIZE = 128


def new_output(q: Tensor, v: Tensor) -> Tensor:
    """Allocate a tensor like the output."""
    return _new_result(v, q.shape[2], block_size("forward", q.shape[3], v.shape[3]))


def new_gradients(q: Tensor, k: Tensor, v: Tensor, shift: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Allocate tensors like the gradients."""
    block = block_size("backward", q.shape[3], v.shape[3])
    grad_q, grad_k, grad_v = (_new_result(x, x.shape[2], block) for x in (q, k, v))
    return grad_q, grad_k, grad_v, torch.empty_like(shift)


def _new_result(like: Tensor, length: int, block: int) -> Tensor:
    """Return an empty [B, H, length, D] with the strides that `_sum_splits` gives; B, H and D are those of `like`."""
    B, H, _, D = like.shape
    padded = torch.empty(B, H, D, -(-length // block) * block, dtype=torch.float32, device=like.device)
    return padded.narrow(3, 0, length).mT


@use_tensor_device
def run_forward(
    q: Tensor, k: Tensor, v: Tensor, shift: Tensor, key_mask: Tensor | None, key_bounds: Tensor | None,
    attn_mask: None, dropped: None, seed: Tensor | None, gamma: float, is_causal: bool, dropout_p: float, half: bool,
) -> Tensor:  # fmt: skip
    """Compute what `inhibitor_operator.attend` returns.

    Args:
        q, k, v, shift, key_mask, gamma, is_causal, dropout_p, half: as there.
        key_bounds: of `key_bounds.key_bounds`; None without a key mask.
        attn_mask, dropped: for other kernels.
        seed: of the dropout, [] int64; None without dropout.
    """
    block = block_size("forward", q.shape[3], v.shape[3])
    inputs = _inputs(q, k, shift, key_mask, key_bounds, seed, gamma, dropout_p)
    config = _config(q, v, block, is_causal, dropout_p)
    grid, split_size, new_partial = _split(q, k, block)
    output = new_partial(v)
    kernel = inhibitor_triton_fp32.forward
    if half and supports_ptx():
        kernel = inhibitor_triton_fp16.forward
        split_size += -split_size % inhibitor_triton_fp16.RUN.value
        q, k, v = inhibitor_triton_fp16.pack_inputs(q, k, v)
    kernel[grid](
        transpose_and_pad(q, block), k.contiguous(), v.contiguous(), *inputs, split_size, output.shape[-1], output,
        config, num_warps=1,
    )  # fmt: skip
    return _sum_splits(output, q)


@use_tensor_device
def run_backward(
    grad_output: Tensor, q: Tensor, k: Tensor, v: Tensor, shift: Tensor, key_mask: Tensor | None,
    key_bounds: Tensor | None, attn_mask: None, dropped: None, seed: Tensor | None, gamma: float, is_causal: bool,
    dropout_p: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Return the gradients of q, k, v and the shift for that of the output."""
    block = block_size("backward", q.shape[3], v.shape[3])
    inputs = _inputs(q, k, shift, key_mask, key_bounds, seed, gamma, dropout_p)
    config = _config(q, v, block, is_causal, dropout_p)
    grid, split_size, new_partial = _split(q, k, block)
    grad_q, grad_shift = new_partial(q), new_partial(q[..., :1])
    inhibitor_triton_fp32.backward_dq[grid](
        transpose_and_pad(q, block), transpose_and_pad(grad_output, block), k.contiguous(), v.contiguous(), *inputs,
        split_size, grad_q.shape[-1], grad_q, grad_shift, config, num_warps=1,
    )  # fmt: skip
    grid, split_size, new_partial = _split(k, q, block)
    grad_k, grad_v = new_partial(k), new_partial(v)
    inhibitor_triton_fp32.backward_dkdv[grid](
        transpose_and_pad(k, block), transpose_and_pad(v, block), q.contiguous(), grad_output.contiguous(), *inputs,
        split_size, grad_k.shape[-1], grad_k, grad_v, config, num_warps=1,
    )  # fmt: skip
    grad_alpha = _sum_splits(grad_shift, q).sum((0, 2, 3)).view_as(shift)  # [B, H, T, 1] -> [H] -> [H, 1, 1]
    return _sum_splits(grad_q, q), _sum_splits(grad_k, k), _sum_splits(grad_v, k), grad_alpha


def _inputs(
    q: Tensor, k: Tensor, shift: Tensor, key_mask: Tensor | None, key_bounds: Tensor | None, seed: Tensor | None,
    gamma: float, dropout_p: float,
) -> list[Any]:  # fmt: skip
    """Return the arguments that all kernels have after their blocks and vectors."""
    return [
        Scaling(1 / gamma, shift.flatten().contiguous()), Padding(key_bytes(key_mask), key_bounds),
        Dropout(dropout_p, seed), q.shape[1], q.shape[2], k.shape[2],
    ]  # fmt: skip


def _config(q: Tensor, v: Tensor, block: int, is_causal: bool, dropout_p: float) -> InhibitorKernelConfig:
    D, V = q.shape[3], v.shape[3]
    block_d = max(2, next_power_of_2(D))
    return InhibitorKernelConfig(D, block_d, V, next_power_of_2(V), block, is_causal, dropout_p > 0, supports_ptx())


def block_size(direction: str, head_dim: int, value_dim: int) -> int:
    """Return how many queries or keys a program holds, "forward" or "backward"."""
    width = next_power_of_2(head_dim + value_dim)
    return max(4, BLOCK[direction] * 128 // max(128, width))


def transpose_and_pad(x: Tensor, block: int) -> Tensor:
    """Copy x [B, H, T, D] to [B, H, D, T'], T' the next multiple of `block`, 0 beyond T."""
    return F.pad(x.mT, (0, -x.shape[2] % block)).contiguous()


def supports_ptx() -> bool:
    """Return whether kernels may contain NVIDIA's assembly: not on other GPUs and not in the interpreter."""
    return torch.version.cuda is not None and os.environ.get("TRITON_INTERPRET") != "1"


def _split(held: Tensor, visited: Tensor, block: int) -> tuple[tuple[int, int, int], int, Callable[[Tensor], Tensor]]:
    """Decide among how many programs to split the visited side.

    Args:
        held: the side with a block per program, [B, H, T, D].
        visited: the side that programs visit one by one, [B, H, S, D].
        block: queries or keys per block.

    Returns:
        The grid, the number of visited positions per split, and a function that allocates an empty partial result
        [splits, B, H, D, T'] for a result whose last dimension is that of its argument.
    """
    B, H, length, _ = held.shape
    num_blocks = triton.cdiv(length, block)
    splits = max(1, min(triton.cdiv(TARGET_PROGRAMS, B * H * num_blocks), visited.shape[2] // MIN_SPLIT_SIZE))

    def new_partial(x: Tensor) -> Tensor:
        return torch.empty(splits, B, H, x.shape[3], num_blocks * block, dtype=torch.float32, device=x.device)

    return (B * H, num_blocks, splits), triton.cdiv(visited.shape[2], splits), new_partial


def _sum_splits(partial: Tensor, like: Tensor) -> Tensor:
    """Sum partial results [splits, B, H, D, T'] to [B, H, T, D], with the T of `like`."""
    return partial.sum(0)[..., : like.shape[2]].mT
