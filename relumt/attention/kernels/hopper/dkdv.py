"""Gradients of the keys and values of ReLU attention on Hopper, and bits for `dq`.

    dV_j = f Σ_i kept_ij ReLU(s_ij) dO_i,   dW = dO Vᵀ,   dK_j = f Σ_i [s_ij > 0] kept_ij dW_ij q_i

A sentence has one factor f; other factors are in dO. q and dO are [B, H, T, D], k and v [B, H, S, D]; a pair takes four
products. Two warpgroups hold 64 keys each and visit blocks of queries; one more warp loads. Tiles are [keys,
queries], so that Wᵀ and dSᵀ are left operands from registers:

    tensor cores   s = k qᵀ │ dw = v dOᵀ          │ dv += p dO           │ dk += ds q
    other units    wait     │ p = ReLU(s), bits   │ ds = dw where p > 0  │ wait

A pair passes a gradient if p > 0, which takes padding, the causal mask and dropout into account. Its bit is stored, so
that the gradient of q needs two products instead of three. The barriers are those of `pipeline`, with kv_full and
kv_empty for a warpgroup's keys and values.
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
    collect_bits,
    fast_log2,
    hide_future,
    keep,
    load_words,
    mma_layout,
    operand_a,
    pack,
    pack_relu,
    positive_masks,
    split_columns,
    split_pairs,
    store_bits,
    store_gradient,
    unpack,
)
from relumt.attention.kernels.hopper.pipeline import allocate, allocate_ring, load_either, tma_load
from relumt.attention.kernels.hopper.tiles import load_bounds, locate, query_blocks

NWG = gl.constexpr(2)


@gluon.jit
def load_tiles(
    BT: gl.constexpr, STAGES: gl.constexpr, D: gl.constexpr, CAUSAL: gl.constexpr, PADDED: gl.constexpr, descriptors,
    buffers, padding, sizes,
):  # fmt: skip
    """Load k and v [64, D] per warpgroup, and blocks of q and dO [BT, D] in turns; TMA pads with zeros."""
    k_desc, v_desc, zeroed_k_desc, zeroed_v_desc, q_desc, do_desc = descriptors
    k_bufs, v_bufs, q_bufs, do_bufs, barriers = buffers
    kv_full, kv_empty, q_full, q_empty, do_full, do_empty = barriers
    KeyBounds, Mixed = padding
    H, T, S, num_tiles = sizes
    tiles_per_head = gl.cdiv(S, 128)
    count = 0
    turn = 0
    for tile in range(gl.program_id(0), num_tiles, gl.num_programs(0)):
        bh, block = locate(tile, tiles_per_head, CAUSAL)
        b = bh // H
        h = bh % H
        first_real, after_real = load_bounds(KeyBounds, b, S, PADDED)
        start, stop = query_blocks(first_real, after_real, block, T, S, CAUSAL)
        is_mixed = 0
        if PADDED:
            is_mixed = gl.load(Mixed + b * tiles_per_head + block)
        for w in gl.static_range(NWG):
            at = [b, h, block * 128 + 64 * w, 0]
            mbarrier.wait(kv_empty.index(w), (turn & 1) ^ 1)
            mbarrier.expect(kv_full.index(w), 2 * 64 * D * 2)
            load_either(is_mixed, zeroed_k_desc, k_desc, at, kv_full.index(w), k_bufs.index(w), PADDED)
            load_either(is_mixed, zeroed_v_desc, v_desc, at, kv_full.index(w), v_bufs.index(w), PADDED)
        for j in range(start * (128 // BT), stop * (128 // BT)):
            i = count % STAGES
            phase = (count // STAGES & 1) ^ 1
            mbarrier.wait(q_empty.index(i), phase)
            mbarrier.expect(q_full.index(i), BT * D * 2)
            tma_load(q_desc, [b, h, j * BT, 0], q_full.index(i), q_bufs.index(i))
            mbarrier.wait(do_empty.index(i), phase)
            mbarrier.expect(do_full.index(i), BT * D * 2)
            tma_load(do_desc, [b, h, j * BT, 0], do_full.index(i), do_bufs.index(i))
            count += 1
        turn += 1  # noqa: SIM113 (Gluon has no enumerate)


@gluon.jit
def consumer(
    w: gl.constexpr, BT: gl.constexpr, STAGES: gl.constexpr, D: gl.constexpr, CAUSAL: gl.constexpr,
    PADDED: gl.constexpr, DROPOUT: gl.constexpr, HAS_FACTOR: gl.constexpr, ROW_GRADS: gl.constexpr, buffers, tensors,
    sizes,
):  # fmt: skip
    """Compute the gradients of 64 keys of each tile, and the bits of their pairs."""
    k_bufs, v_bufs, q_bufs, do_bufs, barriers = buffers
    kv_full, kv_empty, q_full, q_empty, do_full, do_empty = barriers
    GradK, gk_b, gk_h, gk_s, GradV, gv_b, gv_h, gv_s, Factor, f_b, scale, Kept, Bits, RowTerms, KeyBounds = tensors
    H, T, S, num_tiles = sizes
    dtype: gl.constexpr = k_bufs.dtype
    LATE: gl.constexpr = D == 128 and ROW_GRADS and DROPOUT  # dW waits until s has left its registers
    tiles_per_head = gl.cdiv(S, 128)
    blocks = gl.cdiv(T, 128)
    count = 0
    turn = 0
    zero = gl.zeros([64, BT], gl.float32, mma_layout(BT))
    like, _ = split_columns(zero)
    words = collect_bits(like.to(gl.int32))
    for tile in range(gl.program_id(0), num_tiles, gl.num_programs(0)):
        bh, block = locate(tile, tiles_per_head, CAUSAL)
        b = bh // H
        first = block * 128 + 64 * w
        first_real, after_real = load_bounds(KeyBounds, b, S, PADDED)
        start, stop = query_blocks(first_real, after_real, block, T, S, CAUSAL)
        k = k_bufs.index(w).reshape([64, D])
        v = v_bufs.index(w).reshape([64, D])
        grad_k = gl.zeros([64, D], gl.float32, mma_layout(D))
        grad_v = gl.zeros([64, D], gl.float32, mma_layout(D))
        mbarrier.wait(kv_full.index(w), turn & 1)
        if DROPOUT:
            kept_block = bh * tiles_per_head + block
            word = load_words(Kept, kept_block, gl.minimum(start, blocks - 1) * 128, blocks * 128, like)
        for j in range(start * (128 // BT), stop * (128 // BT)):
            i = count % STAGES
            phase = count // STAGES & 1
            q = q_bufs.index(i).reshape([BT, D])
            do = do_bufs.index(i).reshape([BT, D])
            mbarrier.wait(q_full.index(i), phase)
            s = warpgroup_mma(k, q.permute((1, 0)), zero, use_acc=False, is_async=True)  # [64, BT]
            if not LATE:
                mbarrier.wait(do_full.index(i), phase)
                grad_p = warpgroup_mma(v, do.permute((1, 0)), zero, use_acc=False, is_async=True)  # [64, BT]
            s = warpgroup_mma_wait(0 if LATE else 1, deps=(s,))
            if CAUSAL:
                s = hide_future(s, first, j * BT, T, S, True)
            s_even, s_odd = split_columns(s)
            packed = pack_relu(s_even, s_odd, dtype)
            if ROW_GRADS:
                terms = row_terms(s, RowTerms, bh * blocks * 128 + j * BT, dtype) & positive_masks(packed, dtype)
            if DROPOUT:
                packed = keep(packed, word, first)
            p = gl.convert_layout(unpack(packed, dtype), operand_a(D))
            if LATE:
                mbarrier.wait(do_full.index(i), phase)
                grad_p = warpgroup_mma(v, do.permute((1, 0)), zero, use_acc=False, is_async=True)
            grad_v = warpgroup_mma(p, do, grad_v, is_async=True)
            masks = positive_masks(packed, dtype)  # [64, BT/2]
            if not ROW_GRADS:
                words = store_bits(Bits, masks, bh * blocks + j * BT // 128, first, tiles_per_head * 128, words)
            grad_p = warpgroup_mma_wait(1, deps=(grad_p,))
            g_even, g_odd = split_columns(grad_p)
            packed_grad = pack(g_even, g_odd, dtype) & masks
            if ROW_GRADS:
                packed_grad = add_pairs(packed_grad, terms, dtype)
            ds = gl.convert_layout(unpack(packed_grad, dtype), operand_a(D))
            grad_k = warpgroup_mma(ds, q, grad_k, is_async=True)
            if DROPOUT:  # for the next block, because L2 takes as long as these products
                word = load_words(Kept, kept_block, gl.minimum((j + 1) * BT, blocks * 128 - BT), blocks * 128, like)
            grad_v, p = warpgroup_mma_wait(1, deps=(grad_v, p))
            mbarrier.arrive(do_empty.index(i), count=1)
            grad_k, ds = warpgroup_mma_wait(0, deps=(grad_k, ds))
            mbarrier.arrive(q_empty.index(i), count=1)
            count += 1
        mbarrier.arrive(kv_empty.index(w), count=1)
        turn += 1  # noqa: SIM113 (Gluon has no enumerate)
        if HAS_FACTOR:
            f = gl.load(Factor + b * f_b) * scale
            grad_k *= f
            grad_v *= f
        store_gradient(GradK, gk_b, gk_h, gk_s, grad_k, bh, first, H, S, D)
        store_gradient(GradV, gv_b, gv_h, gv_s, grad_v, bh, first, H, S, D)


@gluon.jit
def row_terms(s, RowTerms, first, dtype: gl.constexpr):
    """Return the gradient of scores [64, BT] through row sums, packed: a_i + b_i log2 s_ij.

    Args:
        s: scores.
        RowTerms: pairs of float32, a and b of each query.
        first: the tile's first query.
    """
    queries = gl.arange(0, s.shape[1], layout=gl.SliceLayout(0, s.type.layout))
    a, b = split_pairs(gl.load(RowTerms + first + queries))
    even, odd = split_columns(a[None, :] + b[None, :] * fast_log2(at_least_tiny(s)))
    return pack(even, odd, dtype)


@gluon.jit(do_not_specialize=["f_b", "H", "T", "S", "num_tiles"])
def backward_dkdv(
    k_desc, v_desc, zeroed_k_desc, zeroed_v_desc, q_desc, do_desc, KeyBounds, Mixed, GradK, gk_b, gk_h, gk_s,
    GradV, gv_b, gv_h, gv_s, Factor, f_b, scale, Kept, Bits, RowTerms, H, T, S, num_tiles,
    BT: gl.constexpr, STAGES: gl.constexpr, D: gl.constexpr, CREGS: gl.constexpr, CAUSAL: gl.constexpr,
    PADDED: gl.constexpr, DROPOUT: gl.constexpr, HAS_FACTOR: gl.constexpr, ROW_GRADS: gl.constexpr,
):  # fmt: skip
    """Compute dK and dV with two warpgroups.

    Args:
        k_desc, v_desc, zeroed_k_desc, zeroed_v_desc, q_desc, do_desc: descriptors of K, V, Q and dO, see `forward`.
        KeyBounds, Mixed: see `forward`.
        GradK, GradV: [B, H, S, D] with strides g_b, g_h, g_s, 1.
        Factor, scale: f [B] with stride f_b, if HAS_FACTOR, and what it is multiplied by; else dO contains both.
        Kept: [B*H, S/128, T/2, 8] int32, if DROPOUT: the words that `forward` stored, two in one.
        Bits: [B*H, T/128, S/2, 8, 2] int16, unless ROW_GRADS: words of `layouts`, with keys as rows.
        RowTerms: [B*H, T] int64, if ROW_GRADS: see `row_terms`.
        num_tiles: B*H*ceil(S / 128).
        CREGS: registers per thread of the warpgroups.
        BT, STAGES: queries of a block, 128 or 64, and number of its buffers.

    In `Kept`, `Bits` and `RowTerms`, T and S are rounded up to multiples of 128.
    """
    v_bufs = allocate_ring(v_desc, NWG, 64, D)
    k_bufs, q_bufs, do_bufs, barriers = allocate(k_desc, q_desc, do_desc, NWG, BT, STAGES, D)
    # Constants stay out of these tuples, because an assignment would turn them into run-time values.
    descriptors = (k_desc, v_desc, zeroed_k_desc, zeroed_v_desc, q_desc, do_desc)
    buffers = (k_bufs, v_bufs, q_bufs, do_bufs, barriers)
    tensors = (GradK, gk_b, gk_h, gk_s, GradV, gv_b, gv_h, gv_s, Factor, f_b, scale, Kept, Bits, RowTerms, KeyBounds)
    sizes = (H, T, S, num_tiles)
    padding = (KeyBounds, Mixed)
    gl.warp_specialize(
        [
            (consumer, (0, BT, STAGES, D, CAUSAL, PADDED, DROPOUT, HAS_FACTOR, ROW_GRADS, buffers, tensors, sizes)),
            (consumer, (1, BT, STAGES, D, CAUSAL, PADDED, DROPOUT, HAS_FACTOR, ROW_GRADS, buffers, tensors, sizes)),
            (load_tiles, (BT, STAGES, D, CAUSAL, PADDED, descriptors, buffers, padding, sizes)),
        ],
        [4, 1],
        [CREGS, 24],
    )
