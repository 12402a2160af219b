"""Shared memory and barriers of the kernels, and the loading warp of those that hold queries: all but `dkdv`.

              q_full                   k_full, v_full
    producer ───────> warpgroups  ... producer ───────> warpgroups
             <───────                          <───────
              q_empty                  k_empty, v_empty

Each warpgroup has one buffer of 64 queries. Blocks of keys and of values go through rings of STAGES buffers, which all
warpgroups read. `dkdv` holds keys and values, and visits queries and their dO. A "full" barrier completes when TMA has
written its bytes, an "empty" one when every warpgroup that reads the buffer has arrived. Both sides count blocks and
tiles from 0: block `count` uses buffer count % STAGES, and its phase is count // STAGES % 2.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma

from relumt.attention.kernels.hopper.tiles import key_blocks, load_bounds, locate

tma_load = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared  # the name until Triton 3.7


@gluon.jit
def allocate_ring(desc, num: gl.constexpr, rows: gl.constexpr, D: gl.constexpr):
    """Allocate buffers [rows, D] for TMA."""
    return gl.allocate_shared_memory(desc.dtype, [num, 1, 1, rows, D], desc.layout)


@gluon.jit
def allocate_barriers(num: gl.constexpr, arrivals: gl.constexpr):
    """Allocate barriers that complete after so many arrivals."""
    barriers = gl.allocate_shared_memory(gl.int64, [num, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(num):
        mbarrier.init(barriers.index(i), count=arrivals)
    return barriers


@gluon.jit
def allocate(
    held_desc, first_desc, second_desc, NWG: gl.constexpr, rows: gl.constexpr, STAGES: gl.constexpr, D: gl.constexpr
):
    """Allocate a buffer [64, D] per warpgroup for what it holds, two rings [rows, D] for what it visits, and barriers.

    The barriers are those of the held buffers, of the first ring and of the second, each full and empty.
    """
    held_bufs = allocate_ring(held_desc, NWG, 64, D)
    first_bufs = allocate_ring(first_desc, STAGES, rows, D)
    second_bufs = allocate_ring(second_desc, STAGES, rows, D)
    held_full = allocate_barriers(NWG, 1)
    held_empty = allocate_barriers(NWG, 1)
    first_full = allocate_barriers(STAGES, 1)
    first_empty = allocate_barriers(STAGES, NWG)
    second_full = allocate_barriers(STAGES, 1)
    second_empty = allocate_barriers(STAGES, NWG)
    fence_async_shared()
    barriers = (held_full, held_empty, first_full, first_empty, second_full, second_empty)
    return held_bufs, first_bufs, second_bufs, barriers


@gluon.jit
def load_either(is_mixed, zeroed_desc, desc, at, full, buffer, PADDED: gl.constexpr):
    """Load a block of keys, from the copy in which hidden ones are 0 if it has hidden ones."""
    if PADDED:
        if is_mixed != 0:
            tma_load(zeroed_desc, at, full, buffer)
        else:
            tma_load(desc, at, full, buffer)
    else:
        tma_load(desc, at, full, buffer)


@gluon.jit
def load_keys(
    count, start, stop, b, h, S, Mixed, descriptors, rings, BN: gl.constexpr, STAGES: gl.constexpr, D: gl.constexpr,
    PADDED: gl.constexpr,
):  # fmt: skip
    """Load blocks `start` to `stop` of k and v [BN, D] in turns; the first is block `count` of all tiles.

    Returns:
        The count for the next tile.
    """
    k_desc, v_desc, zeroed_k_desc, zeroed_v_desc = descriptors
    k_bufs, v_bufs, k_full, k_empty, v_full, v_empty = rings
    for j in range(start, stop):
        i = count % STAGES
        phase = (count // STAGES & 1) ^ 1
        at = [b, h, j * BN, 0]
        is_mixed = 0
        if PADDED:
            is_mixed = gl.load(Mixed + b * gl.cdiv(S, BN) + j)
        mbarrier.wait(k_empty.index(i), phase)
        mbarrier.expect(k_full.index(i), BN * D * 2)
        load_either(is_mixed, zeroed_k_desc, k_desc, at, k_full.index(i), k_bufs.index(i), PADDED)
        mbarrier.wait(v_empty.index(i), phase)
        mbarrier.expect(v_full.index(i), BN * D * 2)
        load_either(is_mixed, zeroed_v_desc, v_desc, at, v_full.index(i), v_bufs.index(i), PADDED)
        count += 1
    return count


@gluon.jit
def producer(
    NWG: gl.constexpr, BN: gl.constexpr, STAGES: gl.constexpr, D: gl.constexpr, CAUSAL: gl.constexpr,
    PADDED: gl.constexpr, held, keys, buffers, padding, sizes,
):  # fmt: skip
    """Load what each warpgroup holds [64, D], and blocks of k and v [BN, D] in turns; TMA pads with zeros.

    Args:
        held: a descriptor and its buffers of each tensor that warpgroups hold: of q, or of q and dO.
        keys: descriptors of k and v, and of their copies without hidden keys.
        buffers: what `allocate` returned.
    """
    _, k_bufs, v_bufs, barriers = buffers
    q_full, q_empty, k_full, k_empty, v_full, v_empty = barriers
    rings = (k_bufs, v_bufs, k_full, k_empty, v_full, v_empty)
    KeyBounds, Mixed = padding
    H, T, S, num_tiles = sizes
    BM: gl.constexpr = 64 * NWG
    tiles_per_head = gl.cdiv(T, BM)
    count = 0
    turn = 0
    for tile in range(gl.program_id(0), num_tiles, gl.num_programs(0)):
        bh, position = locate(tile, tiles_per_head, CAUSAL)
        b = bh // H
        h = bh % H
        first = position * BM
        first_real, after_real = load_bounds(KeyBounds, b, S, PADDED)
        start, stop = key_blocks(first_real, after_real, first + BM - 1, T, S, CAUSAL)
        for w in gl.static_range(NWG):
            mbarrier.wait(q_empty.index(w), (turn & 1) ^ 1)
            mbarrier.expect(q_full.index(w), len(held) * 64 * D * 2)
            for n in gl.static_range(len(held)):
                tma_load(held[n][0], [b, h, first + 64 * w, 0], q_full.index(w), held[n][1].index(w))
        count = load_keys(count, start, stop, b, h, S, Mixed, keys, rings, BN, STAGES, D, PADDED)
        turn += 1  # noqa: SIM113 (Gluon has no enumerate)
