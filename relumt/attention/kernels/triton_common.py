"""Device functions that all Triton kernels share. Shapes: B batch, H heads, T queries, S keys, D head size.

A program works on one head of one sentence; `bh` = b·H + h is its index among all of them.
"""

# Triton compiles these functions; their arguments are pointers and tl.tensor, which mypy cannot check.
# mypy: allow-untyped-defs, allow-incomplete-defs

import os

import torch
import triton
import triton.language as tl

ON_NVIDIA = tl.constexpr(os.environ.get("TRITON_INTERPRET") != "1" and torch.version.hip is None)


@triton.jit
def zeros(rows: tl.constexpr, columns: tl.constexpr = None):
    """Return zeros in float32, [rows, columns] or [rows]."""
    if columns is None:
        return tl.zeros([rows], tl.float32)
    else:
        return tl.zeros([rows, columns], tl.float32)


@triton.jit
def find_head(X, b, h):
    """Return a pointer to one head of X, a `Strided`, and its strides of rows and of dimensions."""
    return X.data + b.to(tl.int64) * X.b + h * X.h, X.row, X.d


@triton.jit
def load_tile(head, rows, row_mask, CONFIG: tl.constexpr):
    """Load a tile [rows, CONFIG.block_d] of `find_head`; rows outside `row_mask` and dimensions beyond D are 0."""
    data, stride_row, stride_d = head
    dims = tl.arange(0, CONFIG.block_d)[None]
    pointers = data + rows[:, None].to(tl.int64) * stride_row + dims * stride_d
    if CONFIG.block_d == CONFIG.D:
        return tl.load(pointers, row_mask[:, None], 0.0)
    else:
        return tl.load(pointers, row_mask[:, None] & (dims < CONFIG.D), 0.0)


@triton.jit
def store_tile(head, x, rows, row_mask, CONFIG: tl.constexpr):
    """Store a tile [rows, CONFIG.block_d] in `find_head`; rows outside `row_mask` and dimensions beyond D are left out.

    Offsets have 64 bits: with [T, B, E] as the layout in memory, T·B·E can exceed 2³¹.
    """
    data, stride_row, stride_d = head
    dims = tl.arange(0, CONFIG.block_d)[None]
    pointers = data + rows[:, None].to(tl.int64) * stride_row + dims * stride_d
    tl.store(pointers, x.to(data.dtype.element_ty), row_mask[:, None] & (dims < CONFIG.D))


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
def multiply_wide(x, y):
    """Return the low and the high half of the product of two uint32 numbers."""
    if ON_NVIDIA:  # one instruction, which LLVM may replace by two
        return tl.inline_asm_elementwise(
            "{ .reg .b64 t; mul.wide.u32 t, $2, $3; mov.b64 {$0, $1}, t; }", "=r,=r,r,r", [x, y],
            dtype=(tl.uint32, tl.uint32), is_pure=True, pack=1,
        )  # fmt: skip
    else:
        product = x.to(tl.uint64) * y
        return product.to(tl.uint32), (product >> 32).to(tl.uint32)


@triton.jit
def philox_2x32(counter_0, counter_1, key):
    """Return two random words of 32 bits for a counter and a key: Philox 2x32 with 7 rounds.

    Its authors know of no flaws with 6 rounds or more, but of a doubt about Philox 4x32 with 7 (Random123, philox.h).
    """
    for _ in tl.static_range(7):
        low, high = multiply_wide(counter_0, 0xD256D193)
        counter_0, counter_1 = high ^ key ^ counter_1, low
        key += 0x9E3779B9
    return counter_0, counter_1


@triton.jit
def dropout_mask(queries, keys, bh, T, dropout_p, seed):
    """Return which pairs dropout keeps: one random word per pair, the same in every kernel."""
    row = bh * T + queries
    word, _ = philox_2x32(tl.cast(keys, tl.uint32), row.to(tl.uint32), seed.to(tl.uint32))
    return tl.uint_to_uniform_float(word) >= dropout_p


@triton.jit
def dropout_mask_tile(first_query, first_key, bh, T, dropout_p, seed, BLOCK_T: tl.constexpr, BLOCK_S: tl.constexpr):
    """Return which pairs of a [BLOCK_T, BLOCK_S] tile dropout keeps; both first indices are multiples of 16.

    `dropout_p` is a multiple of 1/256. One Philox call yields eight bytes. They go to the pairs of the queries i and
    i + 8 with the keys j, j + 1, j + 8 and j + 9, which one thread holds in a tensor core's layout. A pair's byte
    depends on neither the kernel nor the tile size.
    """
    # Indices of calls are expanded, not computed for each pair, so that a thread computes each of its calls once.
    rows = tl.arange(0, BLOCK_T // 16)[:, None, None] * 8 + tl.arange(0, 8)[None, None]
    rows = bh * tl.cdiv(T, 16) * 8 + first_query // 2 + rows.broadcast_to(BLOCK_T // 16, 2, 8).reshape(BLOCK_T)
    columns = tl.arange(0, BLOCK_S // 16)[:, None, None, None] * 4 + tl.arange(0, 4)[None, None, :, None]
    columns = first_key // 4 + columns.broadcast_to(BLOCK_S // 16, 2, 4, 2).reshape(BLOCK_S)
    even, odd = philox_2x32(columns.to(tl.uint32)[None], rows.to(tl.uint32)[:, None], seed.to(tl.uint32))
    i, j = tl.arange(0, BLOCK_T)[:, None], tl.arange(0, BLOCK_S)[None]
    words = tl.where(j % 2 == 0, even, odd) << (i // 8 % 2 * 8 + j // 8 % 2 * 16).to(tl.uint32)
    return words >= tl.full([], dropout_p * 4294967296.0, tl.float32).to(tl.uint32)  # the pair's byte is the highest
