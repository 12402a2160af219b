"""What the Hopper kernels share: register layouts, pairs of bfloat16 numbers in a register, and bits of pairs.

A pair is a query i and a key j. Its score is s_ij = q_i·k_j, and its weight is

    w_ij = ReLU(q_i·k_j / √D) / (γ √(n/2)) = f_i ReLU(s_ij),   f_i = 1 / (γ √(D n/2)).

The kernels apply the factor f_i once, to their sums. A warpgroup (4 warps) holds a tile of scores [64, N] in the layout
of wgmma's accumulators: a thread holds, of each of its rows, two neighboring columns of every eight. Rounded to
bfloat16 these two share a 32-bit register: [64, N] float32 -> [64, N/2] int32.

Bits of pairs are in 16-bit words. Word [row // 2, c, row % 2] has the bits of 16 columns of a block of 128, bit k for
column 8k + c, because a thread of the layout above holds these columns of its rows.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma

tma_load = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared  # the name until Triton 3.7


@gluon.constexpr_function
def mma_layout(n):
    """Return the layout of wgmma's accumulators [64, n]."""
    return gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, n, 16])


@gluon.constexpr_function
def operand_a(n):
    """Return the layout of a left operand in registers, for a product [64, n]."""
    return gl.DotOperandLayout(operand_index=0, parent=mma_layout(n), k_width=2)


@gluon.jit
def add(a, b):
    return a + b


@gluon.jit
def bitwise_or(a, b):
    return a | b


@gluon.jit
def split_columns(x):
    """Return the even and the odd columns of x: [M, N] -> twice [M, N/2]; no instruction in wgmma's layout."""
    return gl.split(x.reshape([x.shape[0], x.shape[1] // 2, 2]))


@gluon.jit
def pack(even, odd):
    """Round to bfloat16: twice [M, N/2] float32 -> [M, N/2] int32."""
    return gl.inline_asm_elementwise(
        "cvt.rn.bf16x2.f32 $0, $2, $1;", "=r,r,r", [even, odd], dtype=gl.int32, is_pure=True, pack=1
    )


@gluon.jit
def pack_relu(even, odd):
    """Apply ReLU and round to bfloat16 in one instruction: twice [M, N/2] float32 -> [M, N/2] int32."""
    return gl.inline_asm_elementwise(
        "cvt.rn.relu.bf16x2.f32 $0, $2, $1;", "=r,r,r", [even, odd], dtype=gl.int32, is_pure=True, pack=1
    )


@gluon.jit
def unpack(x):
    """Invert `pack`: [M, N/2] int32 -> [M, N] bfloat16."""
    even, odd = gl.inline_asm_elementwise(
        "mov.b32 {$0, $1}, $2;", "=h,=h,r", [x], dtype=(gl.bfloat16, gl.bfloat16), is_pure=True, pack=1
    )
    return gl.join(even, odd).reshape([x.shape[0], 2 * x.shape[1]])


@gluon.jit
def store_bits(Bits, masks, block, first, num_rows, N: gl.constexpr):
    """Store one bit per pair of a tile.

    Args:
        Bits: [blocks, num_rows/2, 8, 2] int16.
        masks: [64, N/2] int32, each half 0xFFFF or 0: whether the bit of that column is set.
        block: which block of `Bits`.
        first: the tile's first row.
    """
    pair = gl.arange(0, N // 2, layout=gl.SliceLayout(0, masks.type.layout)) // 4
    words = gl.reduce((masks & (0x00010001 << pair)[None, :]).reshape([64, N // 8, 4]), 1, bitwise_or)  # [64, 4]
    layout: gl.constexpr = words.type.layout
    row = first + gl.arange(0, 64, layout=gl.SliceLayout(1, layout))
    lane = gl.arange(0, 4, layout=gl.SliceLayout(0, layout))
    at = block.to(gl.int64) * num_rows * 8 + (row[:, None] // 2 * 16 + lane[None, :] * 4 + row[:, None] % 2)
    gl.store(Bits + at, words.to(gl.int16), mask=(row < num_rows)[:, None])
    gl.store(Bits + at + 2, (words >> 16).to(gl.int16), mask=(row < num_rows)[:, None])


@gluon.jit
def allocate(q_desc, k_desc, v_desc, NWG: gl.constexpr, BN: gl.constexpr, STAGES: gl.constexpr, D: gl.constexpr):
    """Allocate one buffer of queries per warpgroup, a ring of buffers of keys and of values, and their barriers."""
    q_bufs = gl.allocate_shared_memory(q_desc.dtype, [NWG, 1, 1, 64, D], q_desc.layout)
    k_bufs = gl.allocate_shared_memory(k_desc.dtype, [STAGES, 1, 1, BN, D], k_desc.layout)
    v_bufs = gl.allocate_shared_memory(v_desc.dtype, [STAGES, 1, 1, BN, D], v_desc.layout)
    q_full = gl.allocate_shared_memory(gl.int64, [NWG, 1], mbarrier.MBarrierLayout())
    q_empty = gl.allocate_shared_memory(gl.int64, [NWG, 1], mbarrier.MBarrierLayout())
    k_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    k_empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    v_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    v_empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for w in gl.static_range(NWG):
        mbarrier.init(q_full.index(w), count=1)
        mbarrier.init(q_empty.index(w), count=1)
    for i in gl.static_range(STAGES):
        mbarrier.init(k_full.index(i), count=1)
        mbarrier.init(k_empty.index(i), count=NWG)
        mbarrier.init(v_full.index(i), count=1)
        mbarrier.init(v_empty.index(i), count=NWG)
    fence_async_shared()
    return q_bufs, k_bufs, v_bufs, q_full, q_empty, k_full, k_empty, v_full, v_empty


@gluon.jit
def producer(
    NWG: gl.constexpr, BN: gl.constexpr, STAGES: gl.constexpr, D: gl.constexpr, descriptors, buffers, sizes
):  # fmt: skip
    """Load tiles of q [64, D] per warpgroup, and blocks of k and v [BN, D] in turns; TMA pads with zeros."""
    q_desc, k_desc, v_desc = descriptors
    q_bufs, k_bufs, v_bufs, q_full, q_empty, k_full, k_empty, v_full, v_empty = buffers
    H, T, S, num_tiles = sizes
    BM: gl.constexpr = 64 * NWG
    tiles_per_head = gl.cdiv(T, BM)
    blocks = gl.cdiv(S, BN)
    count = 0
    turn = 0
    for tile in range(gl.program_id(0), num_tiles, gl.num_programs(0)):
        bh = tile // tiles_per_head
        b = bh // H
        h = bh % H
        first = (tile % tiles_per_head) * BM
        for w in gl.static_range(NWG):
            mbarrier.wait(q_empty.index(w), (turn & 1) ^ 1)
            mbarrier.expect(q_full.index(w), 64 * D * 2)
            tma_load(q_desc, [b, h, first + 64 * w, 0], q_full.index(w), q_bufs.index(w))
        for j in range(blocks):
            i = count % STAGES
            phase = (count // STAGES & 1) ^ 1
            mbarrier.wait(k_empty.index(i), phase)
            mbarrier.expect(k_full.index(i), BN * D * 2)
            tma_load(k_desc, [b, h, j * BN, 0], k_full.index(i), k_bufs.index(i))
            mbarrier.wait(v_empty.index(i), phase)
            mbarrier.expect(v_full.index(i), BN * D * 2)
            tma_load(v_desc, [b, h, j * BN, 0], v_full.index(i), v_bufs.index(i))
            count += 1
        turn += 1  # noqa: SIM113 (Gluon has no enumerate)
