"""Gradient of the queries of ReLU attention on Hopper, from the bits that `dkdv_kernel` stores.

    dW = dO Vᵀ,   dS_ij = dW_ij where s_ij > 0, else 0,   dQ_i = f_i Σ_j dS_ij k_j   (f_i: see `kernel_parts`)

This is the forward kernel's pipeline with other operands: dO [B, H, T, D] instead of q, V [B, H, S, D] instead of k,
and K instead of v. The bits take the place of ReLU, so that a pair needs two products instead of three. S must be a
multiple of 128. Each program visits tiles of 64 queries per warpgroup; one more warp loads.
"""

from kernel_parts import allocate, mma_layout, operand_a, pack, producer, split_columns, unpack
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, warpgroup_mma, warpgroup_mma_wait


@gluon.jit
def keep(packed, word, shift):
    """Keep of two bfloat16 numbers those whose bit is set; `shift` moves the bits to the ends of the two halves."""
    return gl.inline_asm_elementwise(
        "{ .reg .b32 t; shl.b32 t, $2, $3; prmt.b32 t, t, t, 0xBB99; and.b32 $0, $1, t; }",
        "=r,r,r,r", [packed, word, shift], dtype=gl.int32, is_pure=True, pack=1,
    )  # fmt: skip


@gluon.jit
def mask_gradients(s, word, shift, BN: gl.constexpr, D: gl.constexpr):
    """Round to bfloat16 and keep where a bit is set: [64, BN] float32 -> [64, BN] as a left operand."""
    even, odd = split_columns(s)
    packed = keep(pack(even, odd).reshape([8, 8, BN // 2]), word[None], shift).reshape([64, BN // 2])
    return gl.convert_layout(unpack(packed), operand_a(D))


@gluon.jit
def consumer(
    w: gl.constexpr, NWG: gl.constexpr, BN: gl.constexpr, STAGES: gl.constexpr, D: gl.constexpr, BT: gl.constexpr,
    buffers, tensors, sizes,
):  # fmt: skip
    q_bufs, k_bufs, v_bufs, q_full, q_empty, k_full, k_empty, v_full, v_empty = buffers
    GradQ, o_b, o_h, o_t, Factor, f_b, f_t, Bits = tensors
    H, T, S, num_tiles = sizes
    BM: gl.constexpr = 64 * NWG
    s_layout: gl.constexpr = mma_layout(BN)
    o_layout: gl.constexpr = mma_layout(D)
    tiles_per_head = gl.cdiv(T, BM)
    blocks = gl.cdiv(S, BN)
    count = 0
    turn = 0
    rows = gl.arange(0, 64, layout=gl.SliceLayout(1, o_layout))
    cols = gl.arange(0, D, layout=gl.SliceLayout(0, o_layout))
    zero_s = gl.zeros([64, BN], gl.float32, s_layout)
    # The layout of two neighboring columns in one register, as [8 blocks of 8 rows, 8 rows, BN/2].
    zero_even, _ = split_columns(zero_s)
    L3: gl.constexpr = zero_even.reshape([8, 8, BN // 2]).type.layout
    word_layout: gl.constexpr = gl.SliceLayout(0, L3)
    word_row = gl.arange(0, 8, layout=gl.SliceLayout(1, word_layout))
    word_pair = gl.arange(0, BN // 2, layout=gl.SliceLayout(0, word_layout))
    row_block = gl.arange(0, 8, layout=gl.SliceLayout(1, gl.SliceLayout(2, L3)))
    for tile in range(gl.program_id(0), num_tiles, gl.num_programs(0)):
        bh = tile // tiles_per_head
        b = bh // H
        h = bh % H
        first = (tile % tiles_per_head) * BM + 64 * w
        # The last tile can begin after the last query, where there are no bits; its results are not stored.
        row_of_bits = bh * gl.cdiv(T, BT) + gl.minimum(first, T - 1) // BT
        bits = Bits + row_of_bits.to(gl.int64) * (S // 2) * 8
        shift = (15 - (first % BT) // 8 - row_block)[:, None, None]
        q = q_bufs.index(w).reshape([64, D])
        mbarrier.wait(q_full.index(w), turn & 1)
        o = gl.zeros([64, D], gl.float32, o_layout)
        i = count % STAGES
        mbarrier.wait(k_full.index(i), count // STAGES & 1)
        s = warpgroup_mma(q, k_bufs.index(i).reshape([BN, D]).permute((1, 0)), zero_s, use_acc=False, is_async=True)
        word = gl.load(bits + word_pair[None, :] * 8 + word_row[:, None])
        s = warpgroup_mma_wait(0, deps=(s,))
        mbarrier.arrive(k_empty.index(i), count=1)
        p = mask_gradients(s, word, shift, BN, D)
        for j in range(1, blocks):
            n = (count + 1) % STAGES
            mbarrier.wait(k_full.index(n), (count + 1) // STAGES & 1)
            s = warpgroup_mma(q, k_bufs.index(n).reshape([BN, D]).permute((1, 0)), zero_s, use_acc=False, is_async=True)
            word = gl.load(bits + (j * (BN // 2) + word_pair[None, :]) * 8 + word_row[:, None])
            mbarrier.wait(v_full.index(i), count // STAGES & 1)
            o = warpgroup_mma(p, v_bufs.index(i).reshape([BN, D]), o, is_async=True)
            s = warpgroup_mma_wait(1, deps=(s,))
            mbarrier.arrive(k_empty.index(n), count=1)
            next_p = mask_gradients(s, word, shift, BN, D)
            o, p = warpgroup_mma_wait(0, deps=(o, p))
            mbarrier.arrive(v_empty.index(i), count=1)
            p = next_p
            i = n
            count += 1
        mbarrier.arrive(q_empty.index(w), count=1)
        mbarrier.wait(v_full.index(i), count // STAGES & 1)
        o = warpgroup_mma(p, v_bufs.index(i).reshape([BN, D]), o, is_async=True)
        o, p = warpgroup_mma_wait(0, deps=(o, p))
        mbarrier.arrive(v_empty.index(i), count=1)
        count += 1
        turn += 1  # noqa: SIM113 (Gluon has no enumerate)
        queries = first + rows
        f = gl.load(Factor + b * f_b + queries * f_t, mask=queries < T, other=0.0)
        o = o * f[:, None]
        offsets = b.to(gl.int64) * o_b + h * o_h + queries[:, None].to(gl.int64) * o_t + cols[None, :]
        gl.store(GradQ + offsets, o.to(GradQ.dtype.element_ty), mask=(queries < T)[:, None])


@gluon.jit(do_not_specialize=["T", "f_b", "f_t"])
def backward_dq(
    q_desc, k_desc, v_desc, GradQ, o_b, o_h, o_t, Factor, f_b, f_t, Bits, H, T, S, num_tiles,
    NWG: gl.constexpr, BN: gl.constexpr, STAGES: gl.constexpr, D: gl.constexpr, BT: gl.constexpr, CREGS: gl.constexpr,
):  # fmt: skip
    """Compute dQ.

    Args:
        q_desc, k_desc, v_desc: descriptors of dO, V and K.
        GradQ: [B, H, T, D] with strides o_b, o_h, o_t, 1.
        Factor: f [B, T] with strides f_b, f_t.
        Bits: [B*H, T/BT, S/2, 8] int32: two words of `kernel_parts`, with keys as rows and queries as columns.
        num_tiles: B*H*ceil(T / (64*NWG)).
        NWG, CREGS: number of warpgroups that compute, and their registers per thread.
        BN, STAGES: keys of a block, and number of its buffers.
    """
    buffers = allocate(q_desc, k_desc, v_desc, NWG, BN, STAGES, D)
    # Constants stay out of these tuples, because an assignment would turn them into run-time values.
    descriptors = (q_desc, k_desc, v_desc)
    tensors = (GradQ, o_b, o_h, o_t, Factor, f_b, f_t, Bits)
    sizes = (H, T, S, num_tiles)
    if NWG == 2:
        gl.warp_specialize(
            [
                (consumer, (0, NWG, BN, STAGES, D, BT, buffers, tensors, sizes)),
                (consumer, (1, NWG, BN, STAGES, D, BT, buffers, tensors, sizes)),
                (producer, (NWG, BN, STAGES, D, descriptors, buffers, sizes)),
            ],
            [4, 1],
            [CREGS, 24],
        )
    else:
        gl.warp_specialize(
            [
                (consumer, (0, NWG, BN, STAGES, D, BT, buffers, tensors, sizes)),
                (consumer, (1, NWG, BN, STAGES, D, BT, buffers, tensors, sizes)),
                (consumer, (2, NWG, BN, STAGES, D, BT, buffers, tensors, sizes)),
                (producer, (NWG, BN, STAGES, D, descriptors, buffers, sizes)),
            ],
            [4, 4, 1],
            [CREGS, CREGS, 24],
        )
