"""What is computed before the kernels for Hopper: copies of keys without hidden ones, and terms of gradients.

TMA loads whole blocks and cannot leave out padding. So blocks that have hidden keys are loaded from a copy, in which
these keys and their values are 0: their scores are 0, and so are their weights and gradients. Other blocks are loaded
from the tensors themselves, or skipped if all their keys are hidden.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs

import torch
import triton
import triton.language as tl
from torch import Tensor

from relumt.attention.kernels.hopper.arguments import Padding
from relumt.attention.kernels.hopper.cached_launch import launch
from relumt.attention.kernels.key_bounds import key_bytes
from relumt.attention.kernels.pointwise_triton_forward import raise_to
from relumt.attention.kernels.triton_arguments import strided

BLOCK = 128


def prepare_padding(
    k: Tensor, v: Tensor, key_mask: Tensor | None, key_bounds: Tensor | None, is_shifted: bool
) -> tuple[Padding, Tensor | None, Tensor | None]:
    """Return where hidden keys are, and copies of k and v without them; None for each without a mask.

    The copies are [B, H, S, D], and written only in blocks that have hidden keys, which are 0 there with their values.

    Args:
        k, v: [B, H, S, D].
        key_mask: [B, S] bool, False for hidden keys.
        key_bounds: of `key_bounds.key_bounds`.
        is_shifted: whether a score of 0 has a weight, so that kernels need to know which keys are visible.
    """
    if key_mask is None or key_bounds is None:
        return Padding(None, None, None), None, None
    B, H, S, D = k.shape
    blocks = triton.cdiv(S, BLOCK)
    mixed = torch.empty(B, blocks, dtype=torch.int32, device=k.device)
    visible = torch.empty(B, blocks, 8, dtype=torch.int32, device=k.device) if is_shifted else None
    padding = Padding(key_bounds, mixed, visible)
    zeroed_k, zeroed_v = (torch.empty(B, H, S, D, dtype=x.dtype, device=x.device) for x in (k, v))
    launch(
        copy_visible_keys, B * H * blocks, strided(k), strided(v), key_bytes(key_mask), padding, zeroed_k, zeroed_v,
        H, S, D, BLOCK,
    )  # fmt: skip
    return padding, zeroed_k, zeroed_v


@triton.jit(do_not_specialize=["H", "S"])
def copy_visible_keys(
    k, v, KeyMask, padding, ZeroedK, ZeroedV, H, S, D: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """Copy a block of keys and values, if it has hidden ones, with 0 for these; store whether it has, and which."""
    blocks = tl.cdiv(S, BLOCK)
    bh = tl.program_id(0) // blocks
    b, h = bh // H, bh % H
    block = tl.program_id(0) % blocks
    keys = block * BLOCK + tl.arange(0, BLOCK)
    visible = tl.load(KeyMask + b.to(tl.int64) * S + keys, keys < S, 1) != 0
    is_mixed = tl.min(visible.to(tl.int32), 0) == 0
    tl.store(padding.mixed + b * blocks + block, is_mixed.to(tl.int32))  # all heads store the same
    if padding.visible is not None:
        bits = (visible & (keys < S)).to(tl.int32).reshape(BLOCK // 8, 8) << tl.arange(0, BLOCK // 8)[:, None]
        tl.store(padding.visible + (b * blocks + block) * 8 + tl.arange(0, 8), tl.sum(bits, 0))
    if is_mixed:
        dims = tl.arange(0, D)
        mask = (visible & (keys < S))[:, None]
        zeroed = (bh.to(tl.int64) * S + keys[:, None]) * D + dims[None]
        at = b.to(tl.int64) * k.b + h.to(tl.int64) * k.h + keys[:, None].to(tl.int64) * k.row + dims[None]
        tl.store(ZeroedK + zeroed, tl.load(k.data + at, mask, 0.0), (keys < S)[:, None])
        at = b.to(tl.int64) * v.b + h.to(tl.int64) * v.h + keys[:, None].to(tl.int64) * v.row + dims[None]
        tl.store(ZeroedV + zeroed, tl.load(v.data + at, mask, 0.0), (keys < S)[:, None])


def scale_rows(x: Tensor, factor: Tensor, scale: float, exponent: int) -> Tensor:
    """Return x times powers of factors and `scale`, with the type of x, as [B, T, H, D] in memory.

    Args:
        x: [B, H, T, D].
        factor: [B, T] float32.
        scale: a number.
        exponent: of the factors.
    """
    B, H, T, D = x.shape
    scaled = torch.empty(B, T, H, D, dtype=x.dtype, device=x.device).transpose(1, 2)
    launch(
        multiply_rows, triton.cdiv(B * T * H, BLOCK), x, *x.stride()[:3], factor, *factor.stride(), scale, scaled,
        B * T * H, H, T, D, BLOCK, exponent,
    )  # fmt: skip
    return scaled


@triton.jit(do_not_specialize=["f_b", "f_t", "num_rows", "H", "T"])
def multiply_rows(
    X, x_b, x_h, x_t, Factor, f_b, f_t, scale, Scaled, num_rows, H, T, D: tl.constexpr, BLOCK: tl.constexpr,
    EXPONENT: tl.constexpr,
):  # fmt: skip
    """Scale rows of [B, T, H, D]."""
    rows = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    h, b, t = rows % H, rows // H // T, rows // H % T
    dims = tl.arange(0, D)
    mask = rows < num_rows
    f = raise_to(tl.load(Factor + b * f_b + t * f_t, mask, 0.0), EXPONENT) * scale
    x = tl.load(X + (b * x_b + h * x_h + t * x_t)[:, None] + dims[None], mask[:, None], 0.0)
    tl.store(Scaled + rows[:, None] * D + dims[None], (x * f[:, None]).to(Scaled.dtype.element_ty), mask[:, None])


def row_terms(
    grad_weight_sum: Tensor | None, grad_w_log_w: Tensor | None, factor: Tensor, scale: float, has_factor: bool,
    exponent: int, is_shifted: bool,
) -> Tensor:  # fmt: skip
    """Return what row sums add to the gradients of scores, [B·H·⌈T/128⌉·128] of one or two float32: a_i, b_i.

    d(g_i Σ_j w_ij + h_i Σ_j w_ij ln w_ij)/dw_ij = g_i + h_i (1 + ln w_ij),   ln w_ij = ln F_i + p ln 2 log2 r_ij

    F and r are those of `powers`. The terms are a_i + b_i log2 x_ij, where x is r if p is 1, else r^(p-1). Without h,
    there is only a.

    Args:
        grad_weight_sum, grad_w_log_w: g and h, [B, H, T]; one can be None.
        factor: f, [B, T].
        scale: what the terms are multiplied by.
        has_factor: whether the kernels multiply the result by F.
        exponent: p.
        is_shifted: whether F is 1.
    """
    given = grad_weight_sum if grad_w_log_w is None else grad_w_log_w
    assert given is not None
    g = torch.zeros_like(given) if grad_weight_sum is None else grad_weight_sum.float().contiguous()
    h = None if grad_w_log_w is None else grad_w_log_w.float().contiguous()
    B, H, T = g.shape
    blocks = B * H * triton.cdiv(T, BLOCK)
    terms = torch.empty(blocks * BLOCK, 1 if h is None else 2, dtype=torch.float32, device=g.device)
    launch(
        compute_row_terms, blocks, g, h, factor, *factor.stride(), scale, terms, H, T, exponent, is_shifted, has_factor,
        BLOCK,
    )  # fmt: skip
    return terms if h is None else terms.view(torch.int64)


@triton.jit(do_not_specialize=["f_b", "f_t", "H", "T"])
def compute_row_terms(
    WeightSumGrad, WLogWGrad, Factor, f_b, f_t, scale, Terms, H, T, EXPONENT: tl.constexpr, SHIFTED: tl.constexpr,
    HAS_FACTOR: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Compute the terms of a block of queries."""
    blocks = tl.cdiv(T, BLOCK)
    bh = tl.program_id(0) // blocks
    queries = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    at = bh.to(tl.int64) * T + queries
    out = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    f = tl.load(Factor + bh // H * f_b + queries * f_t, queries < T, 1.0)
    f = tl.full(f.shape, 1.0, tl.float32) if SHIFTED else raise_to(f, EXPONENT)
    a = tl.load(WeightSumGrad + at, queries < T, 0.0) * scale
    if WLogWGrad is None:
        tl.store(Terms + out, a if HAS_FACTOR else a * f)
    else:
        h = tl.load(WLogWGrad + at, queries < T, 0.0) * scale
        a += h * (1 + tl.log(f))
        b = h * (0.6931471805599453 * EXPONENT / max(EXPONENT - 1, 1))
        if not HAS_FACTOR:
            a, b = a * f, b * f
        tl.store(Terms + out[:, None] * 2 + tl.arange(0, 2)[None], tl.join(a, b))
