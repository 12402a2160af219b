"""The Inhibitor in Triton, for GPUs: no tensor of T·S in either direction. Shapes: B H T S D, V columns of values.

    r_ij = Σ_d |q_id − k_jd|/γ − α,    z_ij = r⁺_ij,    H_iv = Σ_j (v_jv − z_ij)⁺

A program is one warp. It holds a block of queries, dimensions × queries, so that a thread has several dimensions of
several queries and a distance is a sum of its own numbers and two exchanges; it takes the keys one by one. Where there
are few queries the keys are cut into parts, each of a program, and what they give is added up. The backward pass
computes r anew: one kernel goes along the keys for the gradients of q and α, one holds keys and goes along the queries
for those of k and v.

All of it is in float32, but for a forward pass that may be in half precision (`inhibitor_packed`).
"""

import os
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
import triton
from torch import Tensor

from relumt.attention.kernels import inhibitor_float32, inhibitor_packed
from relumt.attention.kernels.derivatives import first_only
from relumt.attention.kernels.key_bounds import bounds

BLOCK = {"values": 32, "gradients": 16}
"""Queries, or keys, that a program holds, as fit into its registers with 64 dimensions and 64 columns of values."""

PROGRAMS = 4096
"""As many warps keep a GPU busy; with fewer the other side is cut into parts."""

SHORTEST_PART = 128


def inhibit(
    q: Tensor, k: Tensor, v: Tensor, gamma: float, shift: Tensor, keys: Tensor | None, causal: bool, dropout: float,
    half: bool,
) -> Tensor:  # fmt: skip
    """Eq. 4 of [IN], [B, H, T, V], float32.

    Args:
        q: [B, H, T, D] float32.
        k: [B, H, S, D] float32.
        v: [B, H, S, V] float32.
        gamma: γ, which divides distances.
        shift: α of each head, [H, 1, 1].
        keys: which are real, [B, S] bool; None for all.
        causal: query i sees keys j ≤ S − T + i.
        dropout: probability of dropping a pair; what is left is not scaled.
        half: whether half precision will do, forward; q and k are then held at ±65,504, v at a quarter of it.
    """
    seed = int(torch.randint(2**31 - 1, ())) if dropout else 0
    real = None if keys is None else keys.contiguous().view(torch.uint8)
    call = _Call(1 / gamma, real, bounds(real), causal, dropout, seed, half)
    return _Inhibit.apply(q, k, v, shift.flatten().contiguous(), call)


@dataclass(frozen=True)
class _Call:
    """What both directions need besides tensors with gradients."""

    rate: float
    keys: Tensor | None
    bounds: Tensor | None
    causal: bool
    dropout: float
    seed: int
    half: bool

    def arguments(self, q: Tensor, k: Tensor, shift: Tensor) -> list:
        """Of the kernels: what all of them read."""
        numbers = (self.rate, q.shape[1], q.shape[2], k.shape[2], self.dropout, self.seed)
        return [shift, self.keys, self.bounds, *numbers]

    def constants(self, q: Tensor, v: Tensor, block: int) -> dict[str, object]:
        """Of the kernels: what they are compiled for."""
        D, V = q.shape[3], v.shape[3]
        return {
            "D": D, "BLOCK_D": max(2, triton.next_power_of_2(D)), "V_SIZE": V, "BLOCK_V": triton.next_power_of_2(V),
            "CAUSAL": self.causal, "DROPOUT": self.dropout > 0, "BLOCK": block, "num_warps": 1,
        }  # fmt: skip


class _Inhibit(torch.autograd.Function):
    """q, k, v, α [H] and a `_Call` → H."""

    @staticmethod
    def forward(ctx, q: Tensor, k: Tensor, v: Tensor, shift: Tensor, call: _Call) -> Tensor:
        ctx.save_for_backward(q, k, v, shift)
        ctx.call = call
        kernel = inhibitor_float32.values
        if call.half:
            kernel = inhibitor_packed.values
            q, k, v = inhibitor_packed.rounded(q, k, v)
        block = block_of("values", q.shape[3], v.shape[3])
        grid, part, partial = _cut(q, k, block)
        mixed = partial(v)
        kernel[grid](
            held(q, block), k.contiguous(), v.contiguous(), *call.arguments(q, k, shift), part, mixed.shape[-1], mixed,
            **call.constants(q, v, block),
        )  # fmt: skip
        return _added(mixed, q)

    @staticmethod
    @first_only
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, shift = ctx.saved_tensors
        call, block = ctx.call, block_of("gradients", q.shape[3], v.shape[3])
        arguments, constants = call.arguments(q, k, shift), call.constants(q, v, block) | {"PTX": _takes_ptx()}
        grid, part, partial = _cut(q, k, block)
        grad_q, of_queries = partial(q), partial(q[..., :1])
        inhibitor_float32.gradients_of_queries[grid](
            held(q, block), held(grad, block), k.contiguous(), v.contiguous(), *arguments, part, grad_q.shape[-1],
            grad_q, of_queries, **constants,
        )  # fmt: skip
        grid, part, partial = _cut(k, q, block)
        grad_k, grad_v = partial(k), partial(v)
        inhibitor_float32.gradients_of_keys[grid](
            held(k, block), held(v, block), q.contiguous(), grad.contiguous(), *arguments, part, grad_k.shape[-1],
            grad_k, grad_v, **constants,
        )  # fmt: skip
        of_shift = _added(of_queries, q).sum((0, 2, 3))
        return _added(grad_q, q), _added(grad_k, k), _added(grad_v, k), of_shift, None


def block_of(what: str, dims: int, columns: int) -> int:
    """How many queries, or keys, a program holds of so many dimensions, with values of so many columns."""
    return max(4, BLOCK[what] * 128 // max(128, triton.next_power_of_2(dims + columns)))


def held(x: Tensor, block: int) -> Tensor:
    """x [B, H, T, D] as programs hold it: [B, H, D, T'] float32, T' the next multiple of `block`, 0 beyond T."""
    return F.pad(x.mT, (0, -x.shape[2] % block)).float().contiguous()


def _takes_ptx() -> bool:
    """Whether the kernels can be told an instruction of NVIDIA's: not when interpreted, and not on other GPUs."""
    return torch.version.cuda is not None and os.environ.get("TRITON_INTERPRET") != "1"


def _cut(rows: Tensor, others: Tensor, block: int) -> tuple[tuple[int, int, int], int, Callable[[Tensor], Tensor]]:
    """The grid of programs that hold `block` rows each, how many others a part has, and what makes a result.

    The result's last dimension is that of x [B, H, T, D]: [parts, B, H, D, T'].
    """
    B, H, count, _ = rows.shape
    programs = B * H * triton.cdiv(count, block)
    parts = max(1, min(triton.cdiv(PROGRAMS, programs), others.shape[2] // SHORTEST_PART))

    def partial(x: Tensor) -> Tensor:
        shape = (parts, B, H, x.shape[3], triton.cdiv(count, block) * block)
        return torch.empty(shape, dtype=torch.float32, device=x.device)

    return (B * H, triton.cdiv(count, block), parts), triton.cdiv(others.shape[2], parts), partial


def _added(partial: Tensor, like: Tensor) -> Tensor:
    """The sum of the parts, [B, H, T, D] with the T of `like`."""
    return partial.sum(0)[..., : like.shape[2]].mT
