"""Gradient of the queries of ReLU attention on Hopper from scores: for gradients of row sums, and for powers of ReLU.

    dS_ij = kept_ij dW_ij + a_i + b_i log2 s_ij where s_ij > 0, else 0,   dW = dO Vᵀ,   dQ_i = f_i Σ_j dS_ij k_j

    dS_ij = r_ij^(p-1) (kept_ij dW_ij + a_i + b_i log2 r_ij^(p-1)) with p > 1 and r of `powers`

A bit per pair does not suffice for that, so a pair takes three products. Two warpgroups hold 64 queries and their dO
each and visit blocks of keys and values; one more warp loads:

    tensor cores   s = q kᵀ │ dw = dO vᵀ      │ (other warpgroup)      │ dq += ds k
    other units    wait     │ r^(p-1), terms  │ ds from dw and terms   │ wait

The barriers are those of `pipeline`; "q" holds q and dO.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import warpgroup_mma, warpgroup_mma_wait

from relumt.attention.kernels.hopper.hidden import hide_future
from relumt.attention.kernels.hopper.layouts import (
    add_pairs,
    keep_columns,
    load_row_words,
    mma_layout,
    pack,
    pack_relu,
    positive_masks,
    store_rows,
    unpack_operand,
    zeros,
)
from relumt.attention.kernels.hopper.pipeline import (
    allocate,
    allocate_buffers,
    get_block,
    producer,
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
from relumt.attention.kernels.hopper.tiles import query_tile


@gluon.jit
def visit_keys(q, do, rings, count, blocks, tile, shift, terms, Kept, sizes, CONFIG: gl.constexpr):
    """Sum up the gradients of 64 queries.

    Args:
        count, blocks: see `forward.visit_keys`.
        tile: index of the sentence and head, and of the first query.

    Returns:
        dQ [64, D] without its factor, and the count with these blocks.
    """
    _, k_ring, v_ring = rings
    bh, first = tile
    _, T, S, _ = sizes
    BN: gl.constexpr = CONFIG.block
    dtype: gl.constexpr = q.dtype
    grad_q = zeros(CONFIG.D)
    for j in range(blocks[0], blocks[1]):
        i = count % CONFIG.stages
        k = get_block(k_ring, i, CONFIG)
        v = get_block(v_ring, i, CONFIG)
        wait(k_ring, i, count, CONFIG)
        s = start_scores(q, k, CONFIG)
        word = 0
        if CONFIG.has_dropout:
            word = load_row_words(Kept, bh * gl.cdiv(S, BN) + j, first, gl.cdiv(T, 128) * 128, BN)
        wait(v_ring, i, count, CONFIG)
        grad_p = start_scores(do, v, CONFIG)
        s = warpgroup_mma_wait(1, deps=(s,))
        s = shift_scores(s, shift, CONFIG)
        if CONFIG.is_causal:
            s = hide_future(s, first, j * BN, T, S, False)
        slope, block_terms = prepare_slope(s, terms, dtype, CONFIG)
        grad_p = warpgroup_mma_wait(0, deps=(grad_p,))
        release(v_ring, i)
        packed_grad = differentiate(grad_p, slope, block_terms, word, dtype, CONFIG)
        ds = unpack_operand(packed_grad, dtype, CONFIG.D)
        grad_q = warpgroup_mma(ds, k, grad_q, is_async=True)
        grad_q, ds = warpgroup_mma_wait(0, deps=(grad_q, ds))
        release(k_ring, i)
        count += 1
    return grad_q, count


@gluon.jit
def consumer(w: gl.constexpr, inputs, CONFIG: gl.constexpr):
    """Compute the gradients of 64 queries of each tile."""
    do_bufs, rings, gradient, scaling, f_b, bias_b, stored, padding, sizes = inputs
    H, T, _, num_tiles = sizes
    rows = gl.arange(0, 64, layout=gl.SliceLayout(1, mma_layout(CONFIG.block)))
    tiles_per_head = gl.cdiv(T, 64 * CONFIG.num_warpgroups)
    count = 0
    turn = 0
    for tile in range(gl.program_id(0), num_tiles, gl.num_programs(0)):
        head, first, blocks = query_tile(tile, w, tiles_per_head, padding, sizes, CONFIG)
        bh, b, _h = head
        do = do_bufs.index(w).reshape([64, CONFIG.D])
        shift = load_shift(scaling, f_b, bias_b, b, CONFIG)
        terms = load_terms(stored.row_terms, bh * gl.cdiv(T, 128) * 128 + first, rows, CONFIG)
        q = receive(rings[0], w, turn, CONFIG)
        grad_q, count = visit_keys(q, do, rings, count, blocks, (bh, first), shift, terms, stored.kept, sizes, CONFIG)
        release(rings[0], w)
        turn += 1  # noqa: SIM113 (Gluon has no enumerate)
        grad_q = scale_gradient(grad_q, gl.load(scaling.factor + b * f_b), scaling.scale, CONFIG)
        store_rows(gradient, grad_q, bh, first, H, T, CONFIG.D)


@gluon.jit
def prepare_slope(s, terms, dtype: gl.constexpr, CONFIG: gl.constexpr):
    """Return what `differentiate` needs of scores: r^(p-1) and terms, or if p is 1, packed masks and terms."""
    if CONFIG.exponent == 1:
        masks = positive_masks(pack_relu(s, dtype), dtype)
        return masks, pack(row_terms(terms, s, 1, CONFIG), dtype)
    else:
        return power(rectify(s), CONFIG.exponent - 1), terms


@gluon.jit
def differentiate(grad_p, slope, terms, word, dtype: gl.constexpr, CONFIG: gl.constexpr):
    """Return the gradients of scores without their factor, packed; `word` says which pairs dropout keeps."""
    if CONFIG.exponent == 1:
        packed = pack(grad_p, dtype)
        if CONFIG.has_dropout:
            packed = keep_columns(packed, word)
        return add_pairs(packed, terms, dtype) & slope
    else:
        kept, dropped = score_gradients(grad_p, slope, terms, 1, dtype, CONFIG)
        return keep_columns(kept ^ dropped, word) ^ dropped if CONFIG.has_dropout else kept


@gluon.jit(do_not_specialize=["f_b", "bias_b", "num_tiles"])
def backward_dq_stats(
    q_desc, do_desc, k_desc, v_desc, zeroed_k_desc, zeroed_v_desc, padding, gradient, scaling, f_b,
    bias_b, stored, num_tiles, CONFIG: gl.constexpr,
):  # fmt: skip
    """Compute dQ with two warpgroups.

    Args:
        q_desc, do_desc, k_desc, v_desc, zeroed_k_desc, zeroed_v_desc: descriptors of Q, dO, K and V, see `forward`.
        padding, scaling, f_b, bias_b: see `forward`; unless `has_factor`, dO contains factors and `scale`.
        gradient: `Strided` [B, H, T, D].
        stored: `Stored`.
        num_tiles: B*H*ceil(T / 128).
    """
    do_bufs = allocate_buffers(do_desc, CONFIG.num_warpgroups, 64, CONFIG)
    rings = allocate(q_desc, k_desc, v_desc, CONFIG)
    sizes = (q_desc.shape[1], q_desc.shape[2], k_desc.shape[2], num_tiles)
    inputs = (do_bufs, rings, gradient, scaling, f_b, bias_b, stored, padding, sizes)
    keys = (k_desc, v_desc, zeroed_k_desc, zeroed_v_desc)
    sources = ((q_desc, do_desc), (rings[0][0], do_bufs), rings, keys, padding, sizes)
    gl.warp_specialize(
        [(consumer, (0, inputs, CONFIG)), (consumer, (1, inputs, CONFIG)), (producer, (sources, CONFIG))],
        [4, 1],
        [CONFIG.registers, 24],
    )
