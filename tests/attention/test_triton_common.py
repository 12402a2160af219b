"""Device functions that the Triton kernels share, in the interpreter or on a GPU."""

from types import SimpleNamespace

import numpy
import pytest
import torch

from tests.attention.philox import kept_in_tile, philox_2x32

triton = pytest.importorskip("triton")
import triton.language as tl  # noqa: E402

from relumt.attention.kernels.pointwise_triton import round_dropout  # noqa: E402
from relumt.attention.kernels.triton_common import dropout_mask, dropout_mask_tile, store_tile  # noqa: E402
from tests.attention.test_pointwise_triton import BLOCKS  # noqa: E402

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@triton.jit
def store_ones(X, row_stride, num_rows, CONFIG: tl.constexpr):
    rows = tl.arange(0, 4)
    store_tile((X, row_stride, 1), tl.full([4, 16], 1, tl.int8), rows, rows < num_rows, CONFIG)


def stored_positions(row_stride, num_rows=3, D=12):
    """Return the positions, relative to the tile, at which a kernel stored ones, in a buffer that begins far below."""
    before = 2 * row_stride + 64  # an offset that wrapped around at 32 bits would be negative
    buffer = torch.zeros(before + 2 * row_stride + 64, dtype=torch.int8, device=DEVICE)
    store_ones[(1,)](buffer[before:], row_stride, num_rows, SimpleNamespace(D=D, block_d=16))
    return (buffer.nonzero().flatten() - before).tolist()


def test_rows_and_dimensions_out_of_bounds_are_not_stored():
    assert stored_positions(32) == [32 * row + d for row in range(3) for d in range(12)]


@pytest.mark.slow  # takes 4 GiB
def test_offsets_have_64_bits():
    stride = 1 << 30  # two rows further is 2^31, out of the range of int32
    assert stored_positions(stride) == [stride * row + d for row in range(3) for d in range(12)]


@triton.jit
def store_dropout(Tile, Pairs, first_query, first_key, bh, T, p, Seed, BLOCK_T: tl.constexpr, BLOCK_S: tl.constexpr):
    i, j = tl.arange(0, BLOCK_T)[:, None], tl.arange(0, BLOCK_S)[None]
    seed = tl.load(Seed)
    tile = dropout_mask_tile(first_query, first_key, bh, T, p, seed, BLOCK_T, BLOCK_S)
    tl.store(Tile + i * BLOCK_S + j, tile)
    tl.store(Pairs + i * BLOCK_S + j, dropout_mask(first_query + i, first_key + j, bh, T, p, seed))


@pytest.mark.parametrize(
    ("first_query", "first_key", "bh", "T", "level", "seed"),
    [
        (0, 0, 0, 100, 77, 0),
        (256, 128, 7, 300, 1, 2**31 - 2),
        (48, 16 * 10**6, 10**4, 5 * 10**5, 255, 12345),  # rows beyond 2^31
    ],
)
@pytest.mark.parametrize("block", BLOCKS)
def test_every_tile_drops_the_pairs_that_numpy_drops(block, first_query, first_key, bh, T, level, seed):
    tile, pairs = torch.empty(2, *block, dtype=torch.bool, device=DEVICE)
    seed_tensor = torch.tensor(seed, device=DEVICE)
    store_dropout[(1,)](tile, pairs, first_query, first_key, bh, T, level / 256, seed_tensor, *block)
    expected = kept_in_tile(first_query, first_key, bh, T, level, seed, *block)
    assert numpy.array_equal(tile.cpu(), expected)
    i, j = first_query + numpy.arange(block[0])[:, None], first_key + numpy.arange(block[1])[None]
    word, _ = philox_2x32(*numpy.broadcast_arrays(j, bh * T + i), seed)
    # The Inhibitor's numbers are floats, whose lowest bit is that of the word without its sign: ~w for negative ones.
    positive = numpy.where(word >> 31, word ^ 0xFFFFFFFF, word)
    assert numpy.array_equal(pairs.cpu(), positive >= level / 256 * 2**31)


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        ((0, 0), 0, (0x257A3673, 0xCD26BE2A)),
        ((0xFFFFFFFF, 0xFFFFFFFF), 0xFFFFFFFF, (0xAB302C4D, 0x3DC9D239)),
        ((0x243F6A88, 0x85A308D3), 0x13198A2E, (0xBEDBBE6B, 0xE4C770B3)),
    ],
)
def test_philox_is_that_of_random123(counter, key, words):
    """The known answers are tests/kat_vectors of github.com/DEShawResearch/random123."""
    assert philox_2x32(*counter, key) == words


@pytest.mark.parametrize(
    ("p", "level"), [(0.0, 0), (1e-9, 1), (0.004, 1), (0.1, 26), (0.5, 128), (0.996, 255), (1 - 1e-9, 255)]
)
def test_probabilities_are_rounded_but_not_to_0_or_1(p, level):
    assert round_dropout(p) * 256 == level
