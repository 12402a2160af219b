"""Shared memory and barriers of the kernels, and the loading warp of those that hold queries: all but `dkdv`.

              q_full                   k_full, v_full
    producer ───────> warpgroups  ... producer ───────> warpgroups
             <───────                          <───────
              q_empty                  k_empty, v_empty

Each warpgroup has one buffer of 64 queries. Blocks of keys and of values go through rings of `stages` buffers, which
all warpgroups read. `dkdv` holds keys and values, and visits queries and their dO. A "full" barrier completes when TMA
has written its bytes, an "empty" one when every warpgroup that reads the buffer has arrived. A warpgroup waits for the
first in `wait`, and arrives at the second in `release`. Both sides count blocks and tiles from 0: block `count`
uses buffer count % stages, and its phase is count // stages % 2.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma, warpgroup_mma

from relumt.attention.kernels.hopper.layouts import zeros
from relumt.attention.kernels.hopper.tiles import query_tile

tma_load = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared  # the name until Triton 3.7


@gluon.jit
def allocate_buffers(desc, num: gl.constexpr, rows: gl.constexpr, CONFIG: gl.constexpr):
    """Allocate buffers [rows, D] for TMA."""
    return gl.allocate_shared_memory(desc.dtype, [num, 1, 1, rows, CONFIG.D], desc.layout)


@gluon.jit
def allocate_barriers(num: gl.constexpr, arrivals: gl.constexpr):
    """Allocate barriers that complete after so many arrivals."""
    barriers = gl.allocate_shared_memory(gl.int64, [num, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(num):
        mbarrier.init(barriers.index(i), count=arrivals)
    return barriers


@gluon.jit
def allocate(held_desc, first_desc, second_desc, CONFIG: gl.constexpr):
    """Allocate a buffer [64, D] per warpgroup for what it holds, and two rings [block, D] for what it visits.

    Returns:
        For each of the three: buffers, full barriers, and empty ones.
    """
    NWG: gl.constexpr = CONFIG.num_warpgroups
    held_bufs = allocate_buffers(held_desc, NWG, 64, CONFIG)
    first_bufs = allocate_buffers(first_desc, CONFIG.stages, CONFIG.block, CONFIG)
    second_bufs = allocate_buffers(second_desc, CONFIG.stages, CONFIG.block, CONFIG)
    held = (held_bufs, allocate_barriers(NWG, 1), allocate_barriers(NWG, 1))
    first = (first_bufs, allocate_barriers(CONFIG.stages, 1), allocate_barriers(CONFIG.stages, NWG))
    second = (second_bufs, allocate_barriers(CONFIG.stages, 1), allocate_barriers(CONFIG.stages, NWG))
    fence_async_shared()
    return held, first, second


@gluon.jit
def load_either(is_mixed, zeroed_desc, desc, at, full, buffer):
    """Load a block, from the copy in which hidden keys are 0 if there is one and the block has hidden keys."""
    if zeroed_desc is None:
        tma_load(desc, at, full, buffer)
    else:
        if is_mixed != 0:
            tma_load(zeroed_desc, at, full, buffer)
        else:
            tma_load(desc, at, full, buffer)


@gluon.jit
def load_block(is_mixed, zeroed_desc, desc, at, ring, i, phase, CONFIG: gl.constexpr):
    """Load a block into buffer i of a ring when it is empty, see `load_either`."""
    bufs, full, empty = ring
    mbarrier.wait(empty.index(i), phase)
    mbarrier.expect(full.index(i), CONFIG.block * CONFIG.D * 2)
    load_either(is_mixed, zeroed_desc, desc, at, full.index(i), bufs.index(i))


@gluon.jit
def producer(sources, CONFIG: gl.constexpr):
    """Load what each warpgroup holds [64, D], and blocks of k and v [block, D] in turns; TMA pads with zeros.

    Args:
        sources: descriptors of what warpgroups hold, q, or q and dO; their buffers; what `allocate` returned;
            descriptors of k and v, and of their copies without hidden keys; `Padding`; sizes.
    """
    held_descs, held_bufs, rings, keys, padding, sizes = sources
    held, k_ring, v_ring = rings
    _, q_full, q_empty = held
    k_desc, v_desc, zeroed_k_desc, zeroed_v_desc = keys
    _, T, S, num_tiles = sizes
    NWG: gl.constexpr = CONFIG.num_warpgroups
    tiles_per_head = gl.cdiv(T, 64 * NWG)
    count = 0
    turn = 0
    for tile in range(gl.program_id(0), num_tiles, gl.num_programs(0)):
        head, first, blocks = query_tile(tile, 0, tiles_per_head, padding, sizes, CONFIG)
        _bh, b, h = head
        for w in gl.static_range(NWG):
            mbarrier.wait(q_empty.index(w), (turn & 1) ^ 1)
            mbarrier.expect(q_full.index(w), len(held_descs) * 64 * CONFIG.D * 2)
            for n in gl.static_range(len(held_descs)):
                tma_load(held_descs[n], [b, h, first + 64 * w, 0], q_full.index(w), held_bufs[n].index(w))
        for j in range(blocks[0], blocks[1]):
            i = count % CONFIG.stages
            phase = (count // CONFIG.stages & 1) ^ 1
            at = [b, h, j * CONFIG.block, 0]
            is_mixed = 0
            if CONFIG.is_padded:
                is_mixed = gl.load(padding.mixed + b * gl.cdiv(S, CONFIG.block) + j)
            load_block(is_mixed, zeroed_k_desc, k_desc, at, k_ring, i, phase, CONFIG)
            load_block(is_mixed, zeroed_v_desc, v_desc, at, v_ring, i, phase, CONFIG)
            count += 1
        turn += 1  # noqa: SIM113 (Gluon has no enumerate)


@gluon.jit
def receive(held, w, turn, CONFIG: gl.constexpr):
    """Wait for what warpgroup w holds of its tile `turn`, and return it [64, D]."""
    bufs, full, _ = held
    x = bufs.index(w).reshape([64, CONFIG.D])
    mbarrier.wait(full.index(w), turn & 1)
    return x


@gluon.jit
def wait(ring, i, count, CONFIG: gl.constexpr):
    """Wait for block `count` of a ring, which is in buffer i."""
    _, full, _ = ring
    mbarrier.wait(full.index(i), count // CONFIG.stages & 1)


@gluon.jit
def get_block(ring, i, CONFIG: gl.constexpr):
    """Return buffer i of a ring [block, D]."""
    bufs, _, _ = ring
    return bufs.index(i).reshape([CONFIG.block, CONFIG.D])


@gluon.jit
def release(ring, i):
    """Tell the loading warp that this warpgroup has read a buffer."""
    _, _, empty = ring
    mbarrier.arrive(empty.index(i), count=1)


@gluon.jit
def start_scores(a, x, CONFIG: gl.constexpr):
    """Start the product a xᵀ of what is held [64, D] and a block: [64, block]."""
    return warpgroup_mma(a, x.permute((1, 0)), zeros(CONFIG.block), use_acc=False, is_async=True)


@gluon.jit
def start_sum(p, ring, i, count, out, CONFIG: gl.constexpr):
    """Wait for block `count` of a ring, in buffer i, and start to add p [64, block] times it to `out` [64, D]."""
    wait(ring, i, count, CONFIG)
    return warpgroup_mma(p, get_block(ring, i, CONFIG), out, is_async=True)
