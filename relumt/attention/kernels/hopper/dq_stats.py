"""Gradient of the queries of ReLU attention on Hopper from scores: for gradients of row sums, and for powers of ReLU.

    dS_ij = kept_ij dW_ij + a_i + b_i log2 s_ij where s_ij > 0, else 0,   dW = dO Vᵀ,   dQ_i = f_i Σ_j dS_ij k_j

    dS_ij = r_ij^(p-1) (kept_ij dW_ij + a_i + b_i log2 r_ij^(p-1)) with p > 1 and r of `powers`

A bit per pair does not suffice for that, so a pair takes three products. Two warpgroups hold 64 queries and their dO
each and visit blocks of keys and values; one more warp loads. The barriers are those of `pipeline`; "q" holds q and dO.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, warpgroup_mma, warpgroup_mma_wait

from relumt.attention.kernels.hopper.hidden import hide_future
from relumt.attention.kernels.hopper.layouts import (
    add_pairs,
    keep_columns,
    load_row_words,
    mma_layout,
    operand_a,
    pack,
    pack_relu,
    positive_masks,
    split_columns,
    store_gradient,
    unpack,
)
from relumt.attention.kernels.hopper.pipeline import allocate, allocate_ring, producer
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
from relumt.attention.kernels.hopper.tiles import key_blocks, load_bounds, locate

NWG = gl.constexpr(2)
BN = gl.constexpr(128)


@gluon.jit
def consumer(
    w: gl.constexpr, STAGES: gl.constexpr, D: gl.constexpr, CAUSAL: gl.constexpr, PADDED: gl.constexpr,
    DROPOUT: gl.constexpr, HAS_FACTOR: gl.constexpr, ROW_GRADS: gl.constexpr, EXPONENT: gl.constexpr,
    SHIFTED: gl.constexpr, inputs,
):  # fmt: skip
    """Compute the gradients of 64 queries of each tile."""
    do_bufs, buffers, tensors, shifts, sizes = inputs
    q_bufs, k_bufs, v_bufs, barriers = buffers
    q_full, q_empty, k_full, k_empty, v_full, v_empty = barriers
    GradQ, o_b, o_h, o_t, Factor, f_b, scale, Kept, RowTerms, KeyBounds = tensors
    Bias, bias_b = shifts
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
        shift = load_shift(Factor, f_b, Bias, bias_b, b, SHIFTED)
        terms = load_terms(RowTerms, bh * tiles_per_head * 128 + first, rows, ROW_GRADS)
        grad_q = gl.zeros([64, D], gl.float32, mma_layout(D))
        mbarrier.wait(q_full.index(w), turn & 1)
        for j in range(start, stop):
            i = count % STAGES
            phase = count // STAGES & 1
            k = k_bufs.index(i).reshape([BN, D])
            mbarrier.wait(k_full.index(i), phase)
            s = warpgroup_mma(q, k.permute((1, 0)), zero, use_acc=False, is_async=True)
            word = 0
            if DROPOUT:
                word = load_row_words(Kept, bh * gl.cdiv(S, BN) + j, first, tiles_per_head * 128, like)
            mbarrier.wait(v_full.index(i), phase)
            v = v_bufs.index(i).reshape([BN, D])
            grad_p = warpgroup_mma(do, v.permute((1, 0)), zero, use_acc=False, is_async=True)
            s = warpgroup_mma_wait(1, deps=(s,))
            s = shift_scores(s, shift, SHIFTED)
            if CAUSAL:
                s = hide_future(s, first, j * BN, T, S, False)
            slope, block_terms = prepare_slope(s, terms, dtype, ROW_GRADS, EXPONENT)
            grad_p = warpgroup_mma_wait(0, deps=(grad_p,))
            mbarrier.arrive(v_empty.index(i), count=1)
            packed_grad = differentiate(grad_p, slope, block_terms, word, dtype, DROPOUT, ROW_GRADS, EXPONENT)
            ds = gl.convert_layout(unpack(packed_grad, dtype), operand_a(D))
            grad_q = warpgroup_mma(ds, k, grad_q, is_async=True)
            grad_q, ds = warpgroup_mma_wait(0, deps=(grad_q, ds))
            mbarrier.arrive(k_empty.index(i), count=1)
            count += 1
        mbarrier.arrive(q_empty.index(w), count=1)
        turn += 1  # noqa: SIM113 (Gluon has no enumerate)
        if HAS_FACTOR:
            grad_q *= slope_factor(gl.load(Factor + b * f_b), EXPONENT, SHIFTED) * scale
        elif EXPONENT > 1:
            grad_q *= EXPONENT
        store_gradient(GradQ, o_b, o_h, o_t, grad_q, bh, first, H, T, D)


@gluon.jit
def prepare_slope(s, terms, dtype: gl.constexpr, ROW_GRADS: gl.constexpr, EXPONENT: gl.constexpr):
    """Return what `differentiate` needs of scores: r^(p-1) and terms, or if p is 1, packed masks and terms."""
    if EXPONENT == 1:
        even, odd = split_columns(s)
        masks = positive_masks(pack_relu(even, odd, dtype), dtype)
        even, odd = split_columns(row_terms(terms, s, 1, ROW_GRADS))
        return masks, pack(even, odd, dtype)
    else:
        return power(rectify(s), EXPONENT - 1), terms


@gluon.jit
def differentiate(
    grad_p, slope, terms, word, dtype: gl.constexpr, DROPOUT: gl.constexpr, ROW_GRADS: gl.constexpr,
    EXPONENT: gl.constexpr,
):  # fmt: skip
    """Return the gradients of scores without their factor, packed; `word` says which pairs dropout keeps."""
    if EXPONENT == 1:
        even, odd = split_columns(grad_p)
        packed = pack(even, odd, dtype)
        if DROPOUT:
            packed = keep_columns(packed, word)
        return add_pairs(packed, terms, dtype) & slope
    else:
        kept, dropped = score_gradients(grad_p, slope, terms, 1, dtype, ROW_GRADS)
        return keep_columns(kept ^ dropped, word) ^ dropped if DROPOUT else kept


@gluon.jit(do_not_specialize=["f_b", "bias_b", "H", "T", "S", "num_tiles"])
def backward_dq_stats(
    q_desc, do_desc, k_desc, v_desc, zeroed_k_desc, zeroed_v_desc, KeyBounds, Mixed, GradQ, o_b, o_h, o_t,
    Factor, f_b, scale, Bias, bias_b, Kept, RowTerms, H, T, S, num_tiles, STAGES: gl.constexpr, D: gl.constexpr,
    CREGS: gl.constexpr, CAUSAL: gl.constexpr, PADDED: gl.constexpr, DROPOUT: gl.constexpr, HAS_FACTOR: gl.constexpr,
    ROW_GRADS: gl.constexpr, EXPONENT: gl.constexpr, SHIFTED: gl.constexpr,
):  # fmt: skip
    """Compute dQ with two warpgroups.

    Args:
        q_desc, do_desc, k_desc, v_desc, zeroed_k_desc, zeroed_v_desc: descriptors of Q, dO, K and V, see `forward`.
        KeyBounds, Mixed: see `forward`.
        GradQ: [B, H, T, D] with strides o_b, o_h, o_t, 1.
        Factor, scale, Bias: see `dkdv`.
        Kept: what `forward` stored, if DROPOUT.
        RowTerms: see `dkdv`.
        num_tiles: B*H*ceil(T / 128).
        CREGS: registers per thread of the warpgroups.
        STAGES: number of buffers for blocks of keys.
        EXPONENT, SHIFTED: see `powers`.
    """
    do_bufs = allocate_ring(do_desc, NWG, 64, D)
    buffers = allocate(q_desc, k_desc, v_desc, NWG, BN, STAGES, D)
    # Constants stay out of these tuples, because an assignment would turn them into run-time values.
    held = ((q_desc, buffers[0]), (do_desc, do_bufs))
    keys = (k_desc, v_desc, zeroed_k_desc, zeroed_v_desc)
    tensors = (GradQ, o_b, o_h, o_t, Factor, f_b, scale, Kept, RowTerms, KeyBounds)
    sizes = (H, T, S, num_tiles)
    padding = (KeyBounds, Mixed)
    inputs = (do_bufs, buffers, tensors, (Bias, bias_b), sizes)
    gl.warp_specialize(
        [
            (consumer, (0, STAGES, D, CAUSAL, PADDED, DROPOUT, HAS_FACTOR, ROW_GRADS, EXPONENT, SHIFTED, inputs)),
            (consumer, (1, STAGES, D, CAUSAL, PADDED, DROPOUT, HAS_FACTOR, ROW_GRADS, EXPONENT, SHIFTED, inputs)),
            (producer, (NWG, BN, STAGES, D, CAUSAL, PADDED, held, keys, buffers, padding, sizes)),
        ],
        [4, 1],
        [CREGS, 24],
    )
