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
    pack,
    pack_relu,
    packed_zeros,
    positive_masks,
    store_bits,
    store_rows,
    unpack_operand,
    zeros,
)
from relumt.attention.kernels.hopper.pipeline import (
    allocate,
    allocate_buffers,
    get_block,
    load_block,
    load_either,
    receive,
    release,
    start_scores,
    wait,
)
from relumt.attention.kernels.hopper.powers import (
    load_shift,
    load_terms,
    power,
    rectify,
    row_terms,
    scale_gradient,
    score_gradients,
    shift_scores,
)
from relumt.attention.kernels.hopper.tiles import key_tile


@gluon.jit
def load_tiles(sources, CONFIG: gl.constexpr):
    """Load k and v [64, D] per warpgroup, and blocks of q and dO [block, D] in turns; TMA pads with zeros."""
    descriptors, v_bufs, rings, padding, sizes = sources
    k_desc, v_desc, zeroed_k_desc, zeroed_v_desc, q_desc, do_desc = descriptors
    held, q_ring, do_ring = rings
    k_bufs, kv_full, kv_empty = held
    _, _, S, num_tiles = sizes
    NWG: gl.constexpr = CONFIG.num_warpgroups
    RATIO: gl.constexpr = 128 // CONFIG.block
    tiles_per_head = gl.cdiv(S, 128)
    count = 0
    turn = 0
    for tile in range(gl.program_id(0), num_tiles, gl.num_programs(0)):
        head, block, _first, blocks = key_tile(tile, 0, tiles_per_head, padding, sizes, CONFIG)
        _bh, b, h = head
        is_mixed = 0
        if CONFIG.is_padded:
            is_mixed = gl.load(padding.mixed + b * tiles_per_head + block)
        for w in gl.static_range(NWG):
            at = [b, h, block * 128 + 64 * w, 0]
            mbarrier.wait(kv_empty.index(w), (turn & 1) ^ 1)
            mbarrier.expect(kv_full.index(w), 2 * 64 * CONFIG.D * 2)
            load_either(is_mixed, zeroed_k_desc, k_desc, at, kv_full.index(w), k_bufs.index(w))
            load_either(is_mixed, zeroed_v_desc, v_desc, at, kv_full.index(w), v_bufs.index(w))
        for j in range(blocks[0] * RATIO, blocks[1] * RATIO):
            i = count % CONFIG.stages
            phase = (count // CONFIG.stages & 1) ^ 1
            at = [b, h, j * CONFIG.block, 0]
            load_block(0, None, q_desc, at, q_ring, i, phase, CONFIG)
            load_block(0, None, do_desc, at, do_ring, i, phase, CONFIG)
            count += 1
        turn += 1  # noqa: SIM113 (Gluon has no enumerate)


@gluon.jit
def visit_queries(k, v, rings, count, blocks, tile, shift, stored, words, lengths, CONFIG: gl.constexpr):
    """Sum up the gradients of 64 keys, and store the bits of their pairs.

    Args:
        count: number of blocks that were visited before.
        blocks: see `key_tile`.
        tile: index of the sentence and head, of the block of keys, and of the first key.
        stored: `Stored`.
        words: what `store_bits` returned last.
        lengths: T, S, and how many blocks of 128 these are.

    Returns:
        dK and dV [64, D] without factors, words, and the count with these blocks.
    """
    _, q_ring, do_ring = rings
    bh, block, first = tile
    _, _, query_blocks, key_blocks = lengths
    BT: gl.constexpr = CONFIG.block
    dtype: gl.constexpr = k.dtype
    LATE: gl.constexpr = CONFIG.D == 128 and CONFIG.row_sums and CONFIG.has_dropout  # dW waits for registers of s
    grad_k = zeros(CONFIG.D)
    grad_v = zeros(CONFIG.D)
    if CONFIG.has_dropout:
        at = bh * key_blocks + block
        word = load_words(stored.kept, at, gl.minimum(blocks[0], query_blocks - 1) * 128, query_blocks * 128, BT)
    for j in range(blocks[0] * (128 // BT), blocks[1] * (128 // BT)):
        i = count % CONFIG.stages
        q = get_block(q_ring, i, CONFIG)
        do = get_block(do_ring, i, CONFIG)
        wait(q_ring, i, count, CONFIG)
        s = start_scores(k, q, CONFIG)
        if not LATE:
            wait(do_ring, i, count, CONFIG)
            grad_p = start_scores(v, do, CONFIG)
        s = warpgroup_mma_wait(0 if LATE else 1, deps=(s,))
        packed, slope, terms = weigh(s, j * BT, tile, shift, stored.row_terms, lengths, dtype, CONFIG)
        if CONFIG.has_dropout:
            packed = keep(packed, word, first)
        p = unpack_operand(packed, dtype, CONFIG.D)
        if LATE:
            wait(do_ring, i, count, CONFIG)
            grad_p = start_scores(v, do, CONFIG)
        grad_v = warpgroup_mma(p, do, grad_v, is_async=True)
        if CONFIG.exponent > 1:  # only now, because registers are scarce before
            terms = load_block_terms(stored.row_terms, bh * query_blocks * 128 + j * BT, CONFIG)
        masks = positive_masks(packed, dtype)  # [64, BT/2]
        if CONFIG.exponent == 1 and not CONFIG.row_sums:
            words = store_bits(stored.bits, masks, bh * query_blocks + j * BT // 128, first, key_blocks * 128, words)
        grad_p = warpgroup_mma_wait(1, deps=(grad_p,))
        ds = unpack_operand(differentiate(grad_p, slope, terms, masks, dtype, CONFIG), dtype, CONFIG.D)
        grad_k = warpgroup_mma(ds, q, grad_k, is_async=True)
        if CONFIG.has_dropout:  # for the next block, because L2 takes as long as these products
            next_first = gl.minimum((j + 1) * BT, query_blocks * 128 - BT)
            word = load_words(stored.kept, at, next_first, query_blocks * 128, BT)
        grad_v, p = warpgroup_mma_wait(1, deps=(grad_v, p))
        release(do_ring, i)
        grad_k, ds = warpgroup_mma_wait(0, deps=(grad_k, ds))
        release(q_ring, i)
        count += 1
    return grad_k, grad_v, words, count


@gluon.jit
def consumer(w: gl.constexpr, inputs, CONFIG: gl.constexpr):
    """Compute the gradients of 64 keys of each tile, and the bits of their pairs."""
    v_bufs, rings, gradients, scaling, f_b, bias_b, stored, padding, sizes = inputs
    H, T, S, num_tiles = sizes
    tiles_per_head = gl.cdiv(S, 128)
    lengths = (T, S, gl.cdiv(T, 128), tiles_per_head)
    count = 0
    turn = 0
    words = collect_bits(packed_zeros(CONFIG.block))
    for tile in range(gl.program_id(0), num_tiles, gl.num_programs(0)):
        head, block, first, blocks = key_tile(tile, w, tiles_per_head, padding, sizes, CONFIG)
        bh, b, _h = head
        shift = load_shift(scaling, f_b, bias_b, b, CONFIG)
        v = v_bufs.index(w).reshape([64, CONFIG.D])
        k = receive(rings[0], w, turn, CONFIG)
        grad_k, grad_v, words, count = visit_queries(
            k, v, rings, count, blocks, (bh, block, first), shift, stored, words, lengths, CONFIG
        )
        release(rings[0], w)
        turn += 1  # noqa: SIM113 (Gluon has no enumerate)
        f = gl.load(scaling.factor + b * f_b)
        grad_k = scale_gradient(grad_k, f, scaling.scale, CONFIG)
        if CONFIG.has_factor:
            grad_v *= scaling.scale if CONFIG.is_shifted else power(f, CONFIG.exponent) * scaling.scale
        if CONFIG.is_shifted and CONFIG.is_padded:
            grad_k = zero_hidden_rows(grad_k, padding.visible, b * tiles_per_head + block, 64 * w, CONFIG.D)
            grad_v = zero_hidden_rows(grad_v, padding.visible, b * tiles_per_head + block, 64 * w, CONFIG.D)
        store_rows(gradients[0], grad_k, bh, first, H, S, CONFIG.D)
        store_rows(gradients[1], grad_v, bh, first, H, S, CONFIG.D)


@gluon.jit
def weigh(s, first_query, tile, shift, RowTerms, lengths, dtype: gl.constexpr, CONFIG: gl.constexpr):
    """Turn scores [64, block] into weights without their factor.

    Returns:
        The weights, packed. If p is 1, scores and the terms of row sums, packed, where weights are positive; otherwise
        r^(p-1) and 0.
    """
    bh, _, first = tile
    T, S, query_blocks, _ = lengths
    s = shift_scores(s, shift, CONFIG)
    if CONFIG.is_causal:
        s = hide_future(s, first, first_query, T, S, True)
    if CONFIG.exponent == 1:
        packed = pack_relu(s, dtype)
        if CONFIG.row_sums:
            terms = load_block_terms(RowTerms, bh * query_blocks * 128 + first_query, CONFIG)
            return packed, s, pack(row_terms(terms, s, 0, CONFIG), dtype) & positive_masks(packed, dtype)
        else:
            return packed, s, 0
    else:
        r = rectify(s)
        slope = power(r, CONFIG.exponent - 1)
        return pack_relu(slope * r, dtype), slope, 0


@gluon.jit
def load_block_terms(RowTerms, first, CONFIG: gl.constexpr):
    """Load a and b of `row_terms` for the queries of a block."""
    queries = gl.arange(0, CONFIG.block, layout=gl.SliceLayout(0, mma_layout(CONFIG.block)))
    return load_terms(RowTerms, first, queries, CONFIG)


@gluon.jit
def differentiate(grad_p, slope, terms, masks, dtype: gl.constexpr, CONFIG: gl.constexpr):
    """Return the gradients of scores without their factor, packed.

    Args:
        grad_p: dW.
        slope: r^(p-1), unless p is 1.
        terms: what `load_block_terms` returned, but if p is 1, what `weigh` did.
        masks: where weights are positive and kept.
    """
    if CONFIG.exponent == 1:
        packed = pack(grad_p, dtype) & masks
        return add_pairs(packed, terms, dtype) if CONFIG.row_sums else packed
    else:
        kept, dropped = score_gradients(grad_p, slope, terms, 0, dtype, CONFIG)
        return dropped ^ (kept ^ dropped) & masks if CONFIG.has_dropout else kept


@gluon.jit(do_not_specialize=["f_b", "bias_b", "num_tiles"])
def backward_dkdv(
    k_desc, v_desc, zeroed_k_desc, zeroed_v_desc, q_desc, do_desc, padding, gradients, scaling, f_b, bias_b, stored,
    num_tiles, CONFIG: gl.constexpr,
):  # fmt: skip
    """Compute dK and dV with two warpgroups.

    Args:
        k_desc, v_desc, zeroed_k_desc, zeroed_v_desc, q_desc, do_desc: descriptors of K, V, Q and dO, see `forward`.
        padding, scaling, f_b, bias_b: see `forward`; unless `has_factor`, dO contains factors and `scale`.
        gradients: `Strided` dK and dV [B, H, S, D].
        stored: `Stored`.
        num_tiles: B*H*ceil(S / 128).
    """
    v_bufs = allocate_buffers(v_desc, CONFIG.num_warpgroups, 64, CONFIG)
    rings = allocate(k_desc, q_desc, do_desc, CONFIG)
    sizes = (q_desc.shape[1], q_desc.shape[2], k_desc.shape[2], num_tiles)
    inputs = (v_bufs, rings, gradients, scaling, f_b, bias_b, stored, padding, sizes)
    descriptors = (k_desc, v_desc, zeroed_k_desc, zeroed_v_desc, q_desc, do_desc)
    sources = (descriptors, v_bufs, rings, padding, sizes)
    gl.warp_specialize(
        [(consumer, (0, inputs, CONFIG)), (consumer, (1, inputs, CONFIG)), (load_tiles, (sources, CONFIG))],
        [4, 1],
        [CONFIG.registers, 24],
    )
