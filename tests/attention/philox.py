"""Which pairs the Triton kernels' dropout keeps, computed with NumPy from the definition of Philox."""

import numpy
import torch
from torch import Tensor

MASK_32 = 0xFFFFFFFF


def philox_2x32(counter_0, counter_1, key, rounds=7):
    """Return two arrays of 32-bit words; see Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3, SC 2011."""
    left, right, key = (numpy.asarray(x).astype(numpy.uint64) & MASK_32 for x in (counter_0, counter_1, key))
    for number in range(rounds):
        product = left * 0xD256D193  # of two 32-bit numbers, so it fits
        left, right = (product >> 32) ^ ((key + number * 0x9E3779B9) & MASK_32) ^ right, product & MASK_32
    return left, right


def kept_in_tile(first_query, first_key, bh, T, level, seed, block_t, block_s):
    """Return which pairs are kept, [block_t, block_s] bool, for p = level / 256."""
    i = first_query + numpy.arange(block_t, dtype=numpy.uint64)[:, None]
    j = first_key + numpy.arange(block_s, dtype=numpy.uint64)[None]
    row = bh * -(-T // 16) * 8 + i // 16 * 8 + i % 8  # queries i and i + 8 share calls
    column = j // 16 * 4 + j % 8 // 2  # and so do the keys j, j + 1, j + 8 and j + 9
    even, odd = philox_2x32(*numpy.broadcast_arrays(column, row), seed)
    words = numpy.where(j % 2, odd, even)
    byte = 3 - (i // 8 % 2 + j // 8 % 2 * 2)
    return (words >> (8 * byte)) % 256 >= level


def kept_pairs(B, H, T, S, level, seed) -> Tensor:
    """Return which pairs are kept, [B, H, T, S] bool, for p = level / 256."""
    heads = [kept_in_tile(0, 0, bh, T, level, seed, T, S) for bh in range(B * H)]
    return torch.from_numpy(numpy.stack(heads)).unflatten(0, (B, H))
