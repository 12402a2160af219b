"""What the Triton kernels share. Shapes: B H T S D.

Blocks of keys that are padding for a whole sentence are skipped: `bounds` says where a sentence's keys begin and end.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor


def bounds(keys: Tensor | None) -> Tensor | None:
    """First real key of each sentence and the one after the last, [B, 2] int32, of keys [B, S] uint8."""
    if keys is None:
        return None
    some = keys.amax(-1) > 0
    first, stop = keys.argmax(-1), keys.shape[1] - keys.flip(-1).argmax(-1)
    return torch.stack([first.where(some, 0), stop.where(some, 0)], -1).int()


def with_strides(x: Tensor) -> tuple:
    """A tensor as kernels take it: itself and its strides."""
    return x, *x.stride()


@triton.jit
def tile(X, s_row, s_d, rows, within, dims, D: tl.constexpr):
    """Rows × D of a tensor, 0 in rows that are not `within` and beyond D."""
    where = X + rows[:, None] * s_row + dims[None] * s_d
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
