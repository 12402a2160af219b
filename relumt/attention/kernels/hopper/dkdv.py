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

With a power of ReLU, p is r^p of `powers`, ds is r^(p-1) dw, and there are no bits. Row sums add to dw, see
`powers.row_terms`.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, warpgroup_mma, warpgroup_mma_wait

from relumt.attention.kernels.hopper.hidden import hide_future, zero_hidden_rows
from relumt.attention.kernels.hopper.layouts import (
    add_pairs,
    collect_bits,
    keep,
    load_words,
    mma_layout,
    operand_a,
    pack,
    pack_relu,
    positive_masks,
    split_columns,
    store_bits,
    store_gradient,
    unpack,
)
from relumt.attention.kernels.hopper.pipeline import allocate, allocate_ring, load_either, tma_load
from relumt.attention.kernels.hopper.powers import (
    load_shift,
    load_terms,
    power,
    rectify,
    row_terms,
    score_gradients,
    shift_scores,
    slope_factor,
)
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
    PADDED: gl.constexpr, DROPOUT: gl.constexpr, HAS_FACTOR: gl.constexpr, ROW_GRADS: gl.constexpr,
    EXPONENT: gl.constexpr, SHIFTED: gl.constexpr, inputs,
):  # fmt: skip
    """Compute the gradients of 64 keys of each tile, and the bits of their pairs."""
    buffers, tensors, shifts, sizes = inputs
    k_bufs, v_bufs, q_bufs, do_bufs, barriers = buffers
    kv_full, kv_empty, q_full, q_empty, do_full, do_empty = barriers
    GradK, gk_b, gk_h, gk_s, GradV, gv_b, gv_h, gv_s, Factor, f_b, scale, Kept, Bits, RowTerms, KeyBounds = tensors
    Bias, bias_b, Visible = shifts
    H, T, S, num_tiles = sizes
    dtype: gl.constexpr = k_bufs.dtype
    STORE_BITS: gl.constexpr = EXPONENT == 1 and not ROW_GRADS
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
        shift = load_shift(Factor, f_b, Bias, bias_b, b, SHIFTED)
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
            s = shift_scores(s, shift, SHIFTED)
            if CAUSAL:
                s = hide_future(s, first, j * BT, T, S, True)
            packed, slope = weigh(s, dtype, EXPONENT)
            if EXPONENT == 1:
                terms = load_block_terms(RowTerms, bh * blocks * 128 + j * BT, BT, ROW_GRADS)
                terms = pack_terms(terms, s, packed, dtype, ROW_GRADS)
            if DROPOUT:
                packed = keep(packed, word, first)
            p = gl.convert_layout(unpack(packed, dtype), operand_a(D))
            if LATE:
                mbarrier.wait(do_full.index(i), phase)
                grad_p = warpgroup_mma(v, do.permute((1, 0)), zero, use_acc=False, is_async=True)
            grad_v = warpgroup_mma(p, do, grad_v, is_async=True)
            if EXPONENT > 1:  # only now, because registers are scarce before
                terms = load_block_terms(RowTerms, bh * blocks * 128 + j * BT, BT, ROW_GRADS)
            masks = positive_masks(packed, dtype)  # [64, BT/2]
            if STORE_BITS:
                words = store_bits(Bits, masks, bh * blocks + j * BT // 128, first, tiles_per_head * 128, words)
            grad_p = warpgroup_mma_wait(1, deps=(grad_p,))
            packed_grad = differentiate(grad_p, slope, terms, masks, dtype, DROPOUT, ROW_GRADS, EXPONENT)
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
        grad_k, grad_v = scale_gradients(grad_k, grad_v, Factor + b * f_b, scale, HAS_FACTOR, EXPONENT, SHIFTED)
        if SHIFTED and PADDED:
            grad_k = zero_hidden_rows(grad_k, Visible, b * tiles_per_head + block, 64 * w, D)
            grad_v = zero_hidden_rows(grad_v, Visible, b * tiles_per_head + block, 64 * w, D)
        store_gradient(GradK, gk_b, gk_h, gk_s, grad_k, bh, first, H, S, D)
        store_gradient(GradV, gv_b, gv_h, gv_s, grad_v, bh, first, H, S, D)


@gluon.jit
def weigh(s, dtype: gl.constexpr, EXPONENT: gl.constexpr):
    """Return weights without their factor, packed, and r^(p-1), in whose place are the scores if p is 1."""
    if EXPONENT == 1:
        w, slope = s, s
    else:
        r = rectify(s)
        slope = power(r, EXPONENT - 1)
        w = slope * r
    even, odd = split_columns(w)
    return pack_relu(even, odd, dtype), slope


@gluon.jit
def load_block_terms(RowTerms, first, BT: gl.constexpr, ROW_GRADS: gl.constexpr):
    """Load a and b of `row_terms` for the queries of a block."""
    queries = gl.arange(0, BT, layout=gl.SliceLayout(0, mma_layout(BT)))
    return load_terms(RowTerms, first, queries, ROW_GRADS)


@gluon.jit
def pack_terms(terms, s, packed, dtype: gl.constexpr, ROW_GRADS: gl.constexpr):
    """Return the terms of row sums, packed, where weights are positive; 0 without any."""
    if ROW_GRADS:
        even, odd = split_columns(row_terms(terms, s, 0, ROW_GRADS))
        return pack(even, odd, dtype) & positive_masks(packed, dtype)
    else:
        return 0


@gluon.jit
def differentiate(
    grad_p, slope, terms, masks, dtype: gl.constexpr, DROPOUT: gl.constexpr, ROW_GRADS: gl.constexpr,
    EXPONENT: gl.constexpr,
):  # fmt: skip
    """Return the gradients of scores without their factor, packed.

    Args:
        grad_p: dW.
        slope: r^(p-1), unless p is 1.
        terms: what `load_block_terms` returned, but if p is 1, what `pack_terms` did.
        masks: where weights are positive and kept.
    """
    if EXPONENT == 1:
        even, odd = split_columns(grad_p)
        packed = pack(even, odd, dtype) & masks
        return add_pairs(packed, terms, dtype) if ROW_GRADS else packed
    else:
        kept, dropped = score_gradients(grad_p, slope, terms, 0, dtype, ROW_GRADS)
        return dropped ^ (kept ^ dropped) & masks if DROPOUT else kept


@gluon.jit
def scale_gradients(
    grad_k, grad_v, Factor, scale, HAS_FACTOR: gl.constexpr, EXPONENT: gl.constexpr, SHIFTED: gl.constexpr
):
    """Multiply both gradients by what their sums left out."""
    if HAS_FACTOR:
        f = gl.load(Factor)
        grad_k *= slope_factor(f, EXPONENT, SHIFTED) * scale
        grad_v *= scale if SHIFTED else power(f, EXPONENT) * scale
    elif EXPONENT > 1:
        grad_k *= EXPONENT
    return grad_k, grad_v


@gluon.jit(do_not_specialize=["f_b", "bias_b", "H", "T", "S", "num_tiles"])
def backward_dkdv(
    k_desc, v_desc, zeroed_k_desc, zeroed_v_desc, q_desc, do_desc, KeyBounds, Mixed, Visible, GradK, gk_b, gk_h, gk_s,
    GradV, gv_b, gv_h, gv_s, Factor, f_b, scale, Bias, bias_b, Kept, Bits, RowTerms, H, T, S, num_tiles,
    BT: gl.constexpr, STAGES: gl.constexpr, D: gl.constexpr, CREGS: gl.constexpr, CAUSAL: gl.constexpr,
    PADDED: gl.constexpr, DROPOUT: gl.constexpr, HAS_FACTOR: gl.constexpr, ROW_GRADS: gl.constexpr,
    EXPONENT: gl.constexpr, SHIFTED: gl.constexpr,
):  # fmt: skip
    """Compute dK and dV with two warpgroups.

    Args:
        k_desc, v_desc, zeroed_k_desc, zeroed_v_desc, q_desc, do_desc: descriptors of K, V, Q and dO, see `forward`.
        KeyBounds, Mixed, Visible: see `forward`.
        GradK, GradV: [B, H, S, D] with strides g_b, g_h, g_s, 1.
        Factor, scale: f [B] with stride f_b, if HAS_FACTOR, and what results are multiplied by; else dO contains F and
            `scale`.
        Bias: see `forward`.
        Kept: [B*H, S/128, T/2, 8] int32, if DROPOUT: the words that `forward` stored, two in one.
        Bits: [B*H, T/128, S/2, 8, 2] int16, if p is 1 and not ROW_GRADS: words of `layouts`, with keys as rows.
        RowTerms: [B*H, T] int64 if ROW_GRADS is 2, float32 if it is 1: see `prepare.row_terms`.
        num_tiles: B*H*ceil(S / 128).
        CREGS: registers per thread of the warpgroups.
        BT, STAGES: queries of a block, 128 or 64, and number of its buffers.
        EXPONENT, SHIFTED: see `powers`.

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
    inputs = (buffers, tensors, (Bias, bias_b, Visible), sizes)
    gl.warp_specialize(
        [
            (consumer, (0, BT, STAGES, D, CAUSAL, PADDED, DROPOUT, HAS_FACTOR, ROW_GRADS, EXPONENT, SHIFTED, inputs)),
            (consumer, (1, BT, STAGES, D, CAUSAL, PADDED, DROPOUT, HAS_FACTOR, ROW_GRADS, EXPONENT, SHIFTED, inputs)),
            (load_tiles, (BT, STAGES, D, CAUSAL, PADDED, descriptors, buffers, padding, sizes)),
        ],
        [4, 1],
        [CREGS, 24],
    )
