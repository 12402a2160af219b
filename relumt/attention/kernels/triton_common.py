"""Device functions that all Triton kernels share. Shapes: B batch, H heads, T queries, S keys, D head size.

A program works on one head of one sentence; `bh` = b·H + h is its index among all of them.
"""

# Triton compiles these functions; their arguments are pointers and tl.tensor, which mypy cannot check.
# mypy: allow-untyped-defs, allow-incomplete-defs

import triton
import triton.language as tl


@triton.jit
def load_tile(X, stride_row, stride_d, rows, row_mask, dims, D: tl.constexpr):
    """Load a [rows, dims] tile of X; rows outside `row_mask` and dimensions beyond D are 0."""
    pointers = X + rows[:, None].to(tl.int64) * stride_row + dims[None] * stride_d
    if dims.shape[0] == D:
        return tl.load(pointers, row_mask[:, None], 0.0)
    else:
        return tl.load(pointers, row_mask[:, None] & (dims[None] < D), 0.0)


@triton.jit
def store_tile(X, x, stride_row, stride_d, rows, row_mask, dims, D: tl.constexpr):
    """Store a [rows, dims] tile in X; rows outside `row_mask` and dimensions beyond D are left out.

    Offsets have 64 bits: with [T, B, E] as the layout in memory, T·B·E can exceed 2³¹.
    """
    pointers = X + rows[:, None].to(tl.int64) * stride_row + dims[None] * stride_d
    tl.store(pointers, x.to(X.dtype.element_ty), row_mask[:, None] & (dims[None] < D))


@triton.jit
def load_key_bounds(KeyBounds, b, S):
    """Return the index of a sentence's first real key and the index after its last one."""
    if KeyBounds is None:  # `else` is required: Triton compiles the code that follows a return
        return 0, S
    else:
        return tl.load(KeyBounds + 2 * b), tl.load(KeyBounds + 2 * b + 1)


@triton.jit
def load_seed(Seed):
    """Return dropout's seed, which is on the GPU so that a replayed CUDA graph draws others; 0 without dropout."""
    if Seed is None:
        return 0
    else:
        return tl.load(Seed)


@triton.jit
def dropout_mask(queries, keys, bh, T, S, dropout_p, seed):
    """Return which pairs dropout keeps: one random number per pair, the same in every kernel."""
    return tl.rand(seed, (bh * T + queries).to(tl.int64) * S + keys) >= dropout_p


@triton.jit
def dropout_mask_tile(first_query, first_key, bh, T, S, dropout_p, seed, BLOCK_T: tl.constexpr, BLOCK_S: tl.constexpr):
    """Return which pairs of a [BLOCK_T, BLOCK_S] tile dropout keeps; both first indices are multiples of 16.

    One Philox call yields four numbers. They go to the pairs (i, j), (i + 8, j), (i, j + 8) and (i + 8, j + 8), which
    one thread holds in a tensor core's layout. A pair's number depends on neither the kernel nor the tile size.
    """
    groups_t, groups_s = tl.arange(0, BLOCK_T // 2), tl.arange(0, BLOCK_S // 2)
    rows = bh.to(tl.int64) * tl.cdiv(T, 16) * 8 + first_query // 2 + groups_t[:, None]
    drawn = tl.randint4x(seed, rows * tl.cdiv(S, 16) * 8 + first_key // 2 + groups_s[None])
    shape: tl.constexpr = (BLOCK_T // 16, 8, BLOCK_S // 16, 8)
    words = tl.join(
        tl.join(drawn[0].reshape(shape), drawn[1].reshape(shape)),
        tl.join(drawn[2].reshape(shape), drawn[3].reshape(shape)),
    )
    # [T/16, 8, S/16, 8, s half, t half] -> [T/16, t half, 8, S/16, s half, 8] -> [T, S]
    words = words.permute(0, 5, 1, 2, 4, 3).reshape(BLOCK_T, BLOCK_S)
    # Integers are compared: converting every word to a float would take more instructions.
    return words.to(tl.uint32, bitcast=True) >= tl.full([], dropout_p * 4294967296.0, tl.float32).to(tl.uint32)
