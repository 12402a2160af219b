"""What the Inhibitor's Triton kernels share. Shapes: B H T S D, V columns of values.

    r_ij = Σ_d |q_id − k_jd|/γ − α,    z_ij = r⁺_ij,    H_iv = Σ_j (v_jv − z_ij)⁺

A program holds a block of queries, or of keys, dimensions × queries, and takes rows of the other side one by one. A
pair that is hidden or dropped has r = ∞: it gives 0, as long as its value is a number, and gets no gradient.
"""

import triton
import triton.language as tl

from relumt.attention.kernels.tiles import first_and_last, is_kept


@triton.jit
def positive(x):
    """x⁺; NaN stays NaN."""
    return tl.maximum(x, 0.0, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def above(x, PTX: tl.constexpr):
    """1 where x > 0, a half where x = 0, else 0: x·2¹⁰⁰ + ½ held to 0–1, one instruction of NVIDIA's GPUs."""
    if PTX:
        return tl.inline_asm_elementwise(
            "fma.rn.sat.f32 $0, $1, 0f71800000, 0f3F000000;", "=r,r", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    else:
        return tl.minimum(tl.maximum(x * 1.2676506002282294e30 + 0.5, 0.0), 1.0)


@triton.jit
def through(x, y):
    """y where x⁺ has the derivative 1, half of it where x = 0, else 0."""
    return tl.where(x > 0, y, tl.where(x == 0, 0.5 * y, 0.0))


@triton.jit
def load_block(X, bh, stride, columns, dims, D: tl.constexpr):
    """Of a tensor made by `held` these dimensions × columns; 0 beyond D."""
    return tl.load(X + (bh.to(tl.int64) * D + dims[:, None]) * stride + columns[None], dims[:, None] < D, 0.0)


@triton.jit
def load_row(X, bh, count, row, dims, D: tl.constexpr):
    """Of one row of a tensor [B, H, count, D] these dimensions, as a column; 0 beyond D."""
    return tl.load(X + (bh.to(tl.int64) * count + row) * D + dims, dims < D, 0.0)[:, None]


@triton.jit
def store_block(X, x, bh, stride, columns, dims, D: tl.constexpr):
    """Write dims × columns to this part of a result."""
    first = (tl.program_id(2).to(tl.int64) * tl.num_programs(0) + bh) * D
    tl.store(X + (first + dims[:, None]) * stride + columns[None], x, dims[:, None] < D)


@triton.jit
def inhibition(
    distance, rate, shift, queries, key, bh, Keys, b, T, S, dropout, seed,
    CAUSAL: tl.constexpr, DROPOUT: tl.constexpr,
):  # fmt: skip
    """r of a block of columns with one other; `queries` and `key` number the pairs, as blocks that broadcast."""
    r = distance * rate - shift
    seen = (queries < T) & (key < S)
    if Keys is not None:
        seen = seen & (tl.load(Keys + b * S + key, key < S, 0) != 0)
    if CAUSAL:
        seen = seen & (key <= queries + S - T)
    if DROPOUT:
        seen = seen & is_kept(queries, key, bh, T, S, dropout, seed)
    return tl.where(seen, r, float("inf"))


@triton.jit
def keys_of_part(Bounds, b, part, T, S, CAUSAL: tl.constexpr, BLOCK: tl.constexpr):
    """From which key to which this program goes."""
    start, stop = first_and_last(Bounds, b, S)
    if CAUSAL:
        stop = tl.minimum(stop, (tl.program_id(1) + 1) * BLOCK + S - T)
    return tl.maximum(start, tl.program_id(2) * part), tl.minimum(stop, (tl.program_id(2) + 1) * part)


@triton.jit
def queries_of_part(Bounds, b, part, T, S, CAUSAL: tl.constexpr, BLOCK: tl.constexpr):
    """From which query to which a program that holds keys goes."""
    start, stop = tl.program_id(2) * part, tl.minimum(T, (tl.program_id(2) + 1) * part)
    if CAUSAL:
        start = tl.maximum(tl.program_id(1) * BLOCK - (S - T), start)
    real, after = first_and_last(Bounds, b, S)
    if (tl.program_id(1) * BLOCK >= after) | ((tl.program_id(1) + 1) * BLOCK <= real):
        stop = 0
    return start, stop
