"""Device functions that the Triton kernels share, in the interpreter or on a GPU."""

import pytest
import torch

triton = pytest.importorskip("triton")
import triton.language as tl  # noqa: E402

from relumt.attention.kernels.triton_common import store_tile  # noqa: E402

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@triton.jit
def store_ones(X, row_stride, num_rows, D: tl.constexpr):
    rows, dims = tl.arange(0, 4), tl.arange(0, 16)
    store_tile(X, tl.full([4, 16], 1, tl.int8), row_stride, 1, rows, rows < num_rows, dims, D)


def stored_positions(row_stride, num_rows=3, D=12):
    """Return the positions, relative to the tile, at which a kernel stored ones, in a buffer that begins far below."""
    before = 2 * row_stride + 64  # an offset that wrapped around at 32 bits would be negative
    buffer = torch.zeros(before + 2 * row_stride + 64, dtype=torch.int8, device=DEVICE)
    store_ones[(1,)](buffer[before:], row_stride, num_rows, D)
    return (buffer.nonzero().flatten() - before).tolist()


def test_rows_and_dimensions_out_of_bounds_are_not_stored():
    assert stored_positions(32) == [32 * row + d for row in range(3) for d in range(12)]


@pytest.mark.slow  # takes 4 GiB
def test_offsets_have_64_bits():
    stride = 1 << 30  # two rows further is 2^31, out of the range of int32
    assert stored_positions(stride) == [stride * row + d for row in range(3) for d in range(12)]
