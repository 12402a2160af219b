"""Device functions of the Inhibitor's Triton kernels.

Shapes: B batch, H heads, T queries, S keys, D head size, V value size.

    r_ij = Σ_d |q_id − k_jd|/γ − α,    z_ij = r⁺_ij,    out_iv = Σ_j (v_jv − z_ij)⁺

A program holds a block of queries or of keys as [dimensions, positions] and visits the positions of the other side one
by one. A hidden or dropped pair has r = ∞: it contributes 0 (unless its value is a NaN) and gets no gradient.
"""

# Triton compiles these functions; their arguments are pointers and tl.tensor, which mypy cannot check.
# mypy: allow-untyped-defs, allow-incomplete-defs

import triton
import triton.language as tl

from relumt.attention.kernels.triton_common import dropout_mask, load_key_bounds


@triton.jit
def positive_part(x):
    """Return x⁺; NaN stays NaN."""
    return tl.maximum(x, 0.0, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def heaviside(x, USE_PTX: tl.constexpr):
    """Return the derivative of x⁺: 1 for x > 0, ½ for x = 0, 0 for x < 0.

    It is x·2¹⁰⁰ + ½ clamped to [0, 1], which NVIDIA GPUs compute in one instruction.
    """
    if USE_PTX:
        return tl.inline_asm_elementwise(
            "fma.rn.sat.f32 $0, $1, 0f71800000, 0f3F000000;", "=r,r", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    else:
        return tl.minimum(tl.maximum(x * 1.2676506002282294e30 + 0.5, 0.0), 1.0)


@triton.jit
def positive_part_backward(x, grad):
    """Return `grad` times the derivative of x⁺; 0 for x ≤ 0 even if `grad` is not finite."""
    return tl.where(x > 0, grad, tl.where(x == 0, 0.5 * grad, 0.0))


@triton.jit
def load_block(X, bh, stride, positions, dims, D: tl.constexpr):
    """Load a [dims, positions] block of one head from X [B, H, D, stride], see `transpose_and_pad`; 0 beyond D."""
    return tl.load(X + (bh.to(tl.int64) * D + dims[:, None]) * stride + positions[None], dims[:, None] < D, 0.0)


@triton.jit
def load_vector(X, bh, length, position, dims, D: tl.constexpr):
    """Load one position of one head from X [B, H, length, D] as a column, [dims, 1]; 0 beyond D."""
    return tl.load(X + (bh.to(tl.int64) * length + position) * D + dims, dims < D, 0.0)[:, None]


@triton.jit
def store_block(X, x, bh, stride, positions, dims, D: tl.constexpr):
    """Store a [dims, positions] block as this split's partial result in X [splits, B, H, D, stride]."""
    first = (tl.program_id(2).to(tl.int64) * tl.num_programs(0) + bh) * D
    tl.store(X + (first + dims[:, None]) * stride + positions[None], x, dims[:, None] < D)


@triton.jit
def shift_distances(distances, scaling, queries, keys, sentence, padding, dropout, CONFIG: tl.constexpr):
    """Return r for a block's distances to one position; of `queries` and `keys`, one is a block and one a number."""
    inv_gamma, shift = scaling
    _, _, T, S = sentence
    r = tl.where((queries < T) & (keys < S), distances * inv_gamma - shift, float("inf"))
    return hide_pairs(r, queries, keys, sentence, padding, dropout, CONFIG)


@triton.jit
def hide_pairs(r, queries, keys, sentence, padding, dropout, CONFIG: tl.constexpr):
    """Return r, but ∞ for hidden and dropped pairs."""
    b, bh, T, S = sentence
    dropout_p, seed = dropout
    if padding.mask is not None:
        r = tl.where(tl.load(padding.mask + b * S + keys, keys < S, 0) != 0, r, float("inf"))
    if CONFIG.is_causal:
        r = tl.where(keys <= queries + S - T, r, float("inf"))
    if CONFIG.has_dropout:
        r = tl.where(dropout_mask(queries, keys, bh, T, dropout_p, seed), r, float("inf"))
    return r


@triton.jit
def key_range(padding, b, split_size, T, S, CONFIG: tl.constexpr):
    """Return the first key and the key to stop before, for a program that holds queries."""
    start, stop = load_key_bounds(padding.bounds, b, S)
    if CONFIG.is_causal:
        stop = tl.minimum(stop, (tl.program_id(1) + 1) * CONFIG.block + S - T)
    return tl.maximum(start, tl.program_id(2) * split_size), tl.minimum(stop, (tl.program_id(2) + 1) * split_size)


@triton.jit
def query_range(padding, b, split_size, T, S, CONFIG: tl.constexpr):
    """Return the first query and the query to stop before, for a program that holds keys; none if all are padding."""
    start, stop = tl.program_id(2) * split_size, tl.minimum(T, (tl.program_id(2) + 1) * split_size)
    if CONFIG.is_causal:
        start = tl.maximum(tl.program_id(1) * CONFIG.block - (S - T), start)
    first_real, after_last_real = load_key_bounds(padding.bounds, b, S)
    if (tl.program_id(1) * CONFIG.block >= after_last_real) | ((tl.program_id(1) + 1) * CONFIG.block <= first_real):
        stop = 0
    return start, stop
