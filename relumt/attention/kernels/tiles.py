"""What the Triton kernels share. Shapes: B H T S D."""

import triton
import triton.language as tl
from torch import Tensor


def with_strides(x: Tensor) -> tuple:
    """A tensor as kernels take it: itself and its strides."""
    return x, *x.stride()


@triton.jit
def tile(X, s_row, s_d, rows, within, dims, D: tl.constexpr):
    """Rows × D of a tensor, 0 in rows that are not `within` and beyond D."""
    where = X + rows[:, None].to(tl.int64) * s_row + dims[None] * s_d
    if dims.shape[0] == D:
        return tl.load(where, within[:, None], 0.0)
    else:
        return tl.load(where, within[:, None] & (dims[None] < D), 0.0)


@triton.jit
def is_kept(queries, keys, bh, T, S, dropout, seed):
    """Which pairs dropout keeps, the same in every kernel: queries and keys broadcast, each pair has its own number."""
    return tl.rand(seed, (bh * T + queries).to(tl.int64) * S + keys) >= dropout


@triton.jit
def first_and_last(Bounds, b, S):
    """The first real key of a sentence and the one after the last."""
    if Bounds is None:  # Triton compiles what follows a return: hence the else
        return 0, S
    else:
        return tl.load(Bounds + 2 * b), tl.load(Bounds + 2 * b + 1)


@triton.jit
def kept_block(query, key, bh, T, S, dropout, seed, QUERIES: tl.constexpr, KEYS: tl.constexpr):
    """Which pairs of a block dropout keeps, queries × keys, from a query and a key that are multiples of 16.

    A Philox call gives four numbers: to a pair, to that 8 queries on, 8 keys on, and both, which a tensor core's layout
    has in one thread. Blocks of whatever size, and in other kernels, so draw the same.
    """
    of_queries, of_keys = tl.arange(0, QUERIES // 2), tl.arange(0, KEYS // 2)
    fours = bh.to(tl.int64) * tl.cdiv(T, 16) * 8 + query // 2 + of_queries[:, None]
    drawn = tl.randint4x(seed, fours * tl.cdiv(S, 16) * 8 + key // 2 + of_keys[None])
    shape: tl.constexpr = (QUERIES // 16, 8, KEYS // 16, 8)
    words = tl.join(
        tl.join(drawn[0].reshape(shape), drawn[1].reshape(shape)),
        tl.join(drawn[2].reshape(shape), drawn[3].reshape(shape)),
    )
    words = words.permute(0, 5, 1, 2, 4, 3).reshape(QUERIES, KEYS)
    return words.to(tl.uint32, bitcast=True) >= tl.full([], dropout * 4294967296.0, tl.float32).to(tl.uint32)
