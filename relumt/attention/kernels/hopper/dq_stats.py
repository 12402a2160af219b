"""Gradient of the queries of ReLU attention on Hopper, if the sums of weights have gradients, too.

    dS_ij = kept_ij dW_ij + a_i + b_i log2 s_ij where s_ij > 0, else 0,   dW = dO Vᵀ,   dQ_i = f_i Σ_j dS_ij k_j

The logarithm needs the scores, so a pair takes three products. Two warpgroups hold 64 queries and their dO each and
visit blocks of keys and values; one more warp loads. The barriers are those of `pipeline`; "q" holds q and dO.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    mbarrier,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from relumt.attention.kernels.hopper.layouts import (
    add_pairs,
    at_least_tiny,
    fast_log2,
    hide_future,
    keep_columns,
    load_row_words,
    mma_layout,
    operand_a,
    pack,
    pack_relu,
    positive_masks,
    split_columns,
    split_pairs,
    store_gradient,
    unpack,
)
from relumt.attention.kernels.hopper.pipeline import allocate, allocate_ring, producer
from relumt.attention.kernels.hopper.tiles import key_blocks, load_bounds, locate

NWG = gl.constexpr(2)
BN = gl.constexpr(128)


@gluon.jit
def consumer(
    w: gl.constexpr, STAGES: gl.constexpr, D: gl.constexpr, CAUSAL: gl.constexpr, PADDED: gl.constexpr,
    DROPOUT: gl.constexpr, HAS_FACTOR: gl.constexpr, do_bufs, buffers, tensors, sizes,
):  # fmt: skip
    """Compute the gradients of 64 queries of each tile."""
    q_bufs, k_bufs, v_bufs, barriers = buffers
    q_full, q_empty, k_full, k_empty, v_full, v_empty = barriers
    GradQ, o_b, o_h, o_t, Factor, f_b, scale, Kept, RowTerms, KeyBounds = tensors
    H, T, S, num_tiles = sizes
    dtype: gl.constexpr = q_bufs.dtype
    tiles_per_head = gl.cdiv(T, 128)
    count = 0
    turn = 0
    zero = gl.zeros([64, BN], gl.float32, mma_layout(BN))
    like, _ = split_columns(zero)
    rows = gl.arange(0, 64, layout=gl.SliceLayout(1, mma_layout(BN)))
    for tile in range(gl.program_id(0), num_tiles, gl.num_programs(0)):
        bh, position = locate(tile, tiles_per_head, CAUSAL)
        b = bh // H
        first = position * 128 + 64 * w
        first_real, after_real = load_bounds(KeyBounds, b, S, PADDED)
        start, stop = key_blocks(first_real, after_real, position * 128 + 127, T, S, CAUSAL)
        q = q_bufs.index(w).reshape([64, D])
        do = do_bufs.index(w).reshape([64, D])
        terms_a, terms_b = split_pairs(gl.load(RowTerms + (bh * tiles_per_head * 128 + first) + rows))
        grad_q = gl.zeros([64, D], gl.float32, mma_layout(D))
        mbarrier.wait(q_full.index(w), turn & 1)
        for j in range(start, stop):
            i = count % STAGES
            phase = count // STAGES & 1
            k = k_bufs.index(i).reshape([BN, D])
            mbarrier.wait(k_full.index(i), phase)
            s = warpgroup_mma(q, k.permute((1, 0)), zero, use_acc=False, is_async=True)
            if DROPOUT:
                word = load_row_words(Kept, bh * gl.cdiv(S, BN) + j, first, tiles_per_head * 128, like)
            mbarrier.wait(v_full.index(i), phase)
            v = v_bufs.index(i).reshape([BN, D])
            grad_p = warpgroup_mma(do, v.permute((1, 0)), zero, use_acc=False, is_async=True)
            s = warpgroup_mma_wait(1, deps=(s,))
            if CAUSAL:
                s = hide_future(s, first, j * BN, T, S, False)
            s_even, s_odd = split_columns(s)
            masks = positive_masks(pack_relu(s_even, s_odd, dtype), dtype)
            even, odd = split_columns(terms_a[:, None] + terms_b[:, None] * fast_log2(at_least_tiny(s)))
            packed_terms = pack(even, odd, dtype)
            grad_p = warpgroup_mma_wait(0, deps=(grad_p,))
            mbarrier.arrive(v_empty.index(i), count=1)
            g_even, g_odd = split_columns(grad_p)
            packed_grad = pack(g_even, g_odd, dtype)
            if DROPOUT:
                packed_grad = keep_columns(packed_grad, word)
            ds = gl.convert_layout(unpack(add_pairs(packed_grad, packed_terms, dtype) & masks, dtype), operand_a(D))
            grad_q = warpgroup_mma(ds, k, grad_q, is_async=True)
            grad_q, ds = warpgroup_mma_wait(0, deps=(grad_q, ds))
            mbarrier.arrive(k_empty.index(i), count=1)
            count += 1
        mbarrier.arrive(q_empty.index(w), count=1)
        turn += 1  # noqa: SIM113 (Gluon has no enumerate)
        if HAS_FACTOR:
            grad_q *= gl.load(Factor + b * f_b) * scale
        store_gradient(GradQ, o_b, o_h, o_t, grad_q, bh, first, H, T, D)


@gluon.jit(do_not_specialize=["f_b", "H", "T", "S", "num_tiles"])
def backward_dq_stats(
    q_desc, do_desc, k_desc, v_desc, zeroed_k_desc, zeroed_v_desc, KeyBounds, Mixed, GradQ, o_b, o_h, o_t,
    Factor, f_b, scale, Kept, RowTerms, H, T, S, num_tiles, STAGES: gl.constexpr, D: gl.constexpr,
    CREGS: gl.constexpr, CAUSAL: gl.constexpr, PADDED: gl.constexpr, DROPOUT: gl.constexpr, HAS_FACTOR: gl.constexpr,
):  # fmt: skip
    """Compute dQ with two warpgroups.

    Args:
        q_desc, do_desc, k_desc, v_desc, zeroed_k_desc, zeroed_v_desc: descriptors of Q, dO, K and V, see `forward`.
        KeyBounds, Mixed: see `forward`.
        GradQ: [B, H, T, D] with strides o_b, o_h, o_t, 1.
        Factor, scale: f [B] with stride f_b, if HAS_FACTOR, and what it is multiplied by; else dO contains both.
        Kept: what `forward` stored, if DROPOUT.
        RowTerms: [B*H, T] int64, two float32 in one, a and b of each query; T is rounded up.
        num_tiles: B*H*ceil(T / 128).
        CREGS: registers per thread of the warpgroups.
        STAGES: number of buffers for blocks of keys.
    """
    do_bufs = allocate_ring(do_desc, NWG, 64, D)
    buffers = allocate(q_desc, k_desc, v_desc, NWG, BN, STAGES, D)
    # Constants stay out of these tuples, because an assignment would turn them into run-time values.
    held = ((q_desc, buffers[0]), (do_desc, do_bufs))
    keys = (k_desc, v_desc, zeroed_k_desc, zeroed_v_desc)
    tensors = (GradQ, o_b, o_h, o_t, Factor, f_b, scale, Kept, RowTerms, KeyBounds)
    sizes = (H, T, S, num_tiles)
    padding = (KeyBounds, Mixed)
    gl.warp_specialize(
        [
            (consumer, (0, STAGES, D, CAUSAL, PADDED, DROPOUT, HAS_FACTOR, do_bufs, buffers, tensors, sizes)),
            (consumer, (1, STAGES, D, CAUSAL, PADDED, DROPOUT, HAS_FACTOR, do_bufs, buffers, tensors, sizes)),
            (producer, (NWG, BN, STAGES, D, CAUSAL, PADDED, held, keys, buffers, padding, sizes)),
        ],
        [4, 1],
        [CREGS, 24],
    )
