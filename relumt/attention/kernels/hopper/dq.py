"""Gradient of the queries of ReLU attention on Hopper, from the bits that `dkdv` stores.

    dW = dO Vᵀ,   dS_ij = dW_ij where the pair's bit is set, else 0,   dQ_i = f_i Σ_j dS_ij k_j

This is the forward kernel's pipeline with other operands: dO [B, H, T, D] instead of q, V [B, H, S, D] instead of k,
and K instead of v. A bit is set if the score is positive, visible and not dropped; it takes the place of ReLU, so that
a pair needs two products instead of three.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, warpgroup_mma, warpgroup_mma_wait

from relumt.attention.kernels.hopper.layouts import (
    keep,
    load_words,
    mma_layout,
    operand_a,
    pack,
    split_columns,
    store_gradient,
    unpack,
)
from relumt.attention.kernels.hopper.pipeline import allocate, producer
from relumt.attention.kernels.hopper.tiles import key_blocks, load_bounds, locate


@gluon.jit
def mask_gradients(s, word, first, D: gl.constexpr, dtype: gl.constexpr):
    """Round and keep where a bit is set: [64, BN] float32 -> [64, BN] as a left operand."""
    even, odd = split_columns(s)
    packed = keep(pack(even, odd, dtype), word, first)
    return gl.convert_layout(unpack(packed, dtype), operand_a(D))


@gluon.jit
def consumer(
    w: gl.constexpr, NWG: gl.constexpr, BN: gl.constexpr, STAGES: gl.constexpr, D: gl.constexpr, CAUSAL: gl.constexpr,
    PADDED: gl.constexpr, HAS_FACTOR: gl.constexpr, buffers, tensors, sizes,
):  # fmt: skip
    """Compute the gradients of 64 queries of each tile."""
    q_bufs, k_bufs, v_bufs, barriers = buffers
    q_full, q_empty, k_full, k_empty, v_full, v_empty = barriers
    GradQ, o_b, o_h, o_t, Factor, f_b, scale, Bits, KeyBounds = tensors
    H, T, S, num_tiles = sizes
    dtype: gl.constexpr = q_bufs.dtype
    BM: gl.constexpr = 64 * NWG
    tiles_per_head = gl.cdiv(T, BM)
    num_keys = gl.cdiv(S, BN) * BN
    count = 0
    turn = 0
    zero_s = gl.zeros([64, BN], gl.float32, mma_layout(BN))
    like, _ = split_columns(zero_s)
    for tile in range(gl.program_id(0), num_tiles, gl.num_programs(0)):
        bh, position = locate(tile, tiles_per_head, CAUSAL)
        b = bh // H
        first = position * BM + 64 * w
        first_real, after_real = load_bounds(KeyBounds, b, S, PADDED)
        start, stop = key_blocks(first_real, after_real, position * BM + BM - 1, T, S, CAUSAL)
        # The last tile can begin after the last query, where there are no bits; its results are not stored.
        block = bh * gl.cdiv(T, 128) + gl.minimum(first, T - 1) // 128
        q = q_bufs.index(w).reshape([64, D])
        mbarrier.wait(q_full.index(w), turn & 1)
        o = gl.zeros([64, D], gl.float32, mma_layout(D))
        i = count % STAGES
        mbarrier.wait(k_full.index(i), count // STAGES & 1)
        s = warpgroup_mma(q, k_bufs.index(i).reshape([BN, D]).permute((1, 0)), zero_s, use_acc=False, is_async=True)
        word = load_words(Bits, block, start * BN, num_keys, like)
        next_word = load_words(Bits, block, gl.minimum(start + 1, stop - 1) * BN, num_keys, like)
        s = warpgroup_mma_wait(0, deps=(s,))
        mbarrier.arrive(k_empty.index(i), count=1)
        p = mask_gradients(s, word, first, D, dtype)
        for j in range(start + 1, stop):
            n = (count + 1) % STAGES
            mbarrier.wait(k_full.index(n), (count + 1) // STAGES & 1)
            s = warpgroup_mma(q, k_bufs.index(n).reshape([BN, D]).permute((1, 0)), zero_s, use_acc=False, is_async=True)
            word = next_word  # loaded one block ahead: L2 takes as long as the products of a block
            next_word = load_words(Bits, block, gl.minimum(j + 1, stop - 1) * BN, num_keys, like)
            mbarrier.wait(v_full.index(i), count // STAGES & 1)
            o = warpgroup_mma(p, v_bufs.index(i).reshape([BN, D]), o, is_async=True)
            s = warpgroup_mma_wait(1, deps=(s,))
            mbarrier.arrive(k_empty.index(n), count=1)
            next_p = mask_gradients(s, word, first, D, dtype)
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
        if HAS_FACTOR:
            o *= gl.load(Factor + b * f_b) * scale
        store_gradient(GradQ, o_b, o_h, o_t, o, bh, first, H, T, D)


@gluon.jit(do_not_specialize=["f_b", "H", "T", "S", "num_tiles"])
def backward_dq(
    q_desc, k_desc, v_desc, zeroed_k_desc, zeroed_v_desc, KeyBounds, Mixed, GradQ, o_b, o_h, o_t, Factor, f_b, scale,
    Bits, H, T, S, num_tiles, BN: gl.constexpr, STAGES: gl.constexpr, D: gl.constexpr, CREGS: gl.constexpr,
    CAUSAL: gl.constexpr, PADDED: gl.constexpr, HAS_FACTOR: gl.constexpr,
):  # fmt: skip
    """Compute dQ with two warpgroups: their tiles of 128 queries are the blocks for which `dkdv` writes bits.

    Args:
        q_desc, k_desc, v_desc, zeroed_k_desc, zeroed_v_desc: descriptors of dO, V and K, see `forward`.
        KeyBounds, Mixed: see `forward`.
        GradQ: [B, H, T, D] with strides o_b, o_h, o_t, 1.
        Factor, scale: f [B] with stride f_b, if HAS_FACTOR, and what it is multiplied by; else dO contains both.
        Bits: [B*H, T/128, S/2, 8] int32: two words of `layouts`, with keys as rows and queries as columns; T and S are
            rounded up to multiples of 128.
        num_tiles: B*H*ceil(T / 128).
        CREGS: registers per thread of the warpgroups.
        BN, STAGES: keys of a block, and number of its buffers.
    """
    buffers = allocate(q_desc, k_desc, v_desc, 2, BN, STAGES, D)
    # Constants stay out of these tuples, because an assignment would turn them into run-time values.
    held = ((q_desc, buffers[0]),)
    keys = (k_desc, v_desc, zeroed_k_desc, zeroed_v_desc)
    tensors = (GradQ, o_b, o_h, o_t, Factor, f_b, scale, Bits, KeyBounds)
    sizes = (H, T, S, num_tiles)
    padding = (KeyBounds, Mixed)
    gl.warp_specialize(
        [
            (consumer, (0, 2, BN, STAGES, D, CAUSAL, PADDED, HAS_FACTOR, buffers, tensors, sizes)),
            (consumer, (1, 2, BN, STAGES, D, CAUSAL, PADDED, HAS_FACTOR, buffers, tensors, sizes)),
            (producer, (2, BN, STAGES, D, CAUSAL, PADDED, held, keys, buffers, padding, sizes)),
        ],
        [4, 1],
        [CREGS, 24],
    )
