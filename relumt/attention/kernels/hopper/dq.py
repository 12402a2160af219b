"""Gradient of the queries of ReLU attention on Hopper, from the bits that `dkdv` stores.

    dW = dO Vᵀ,   dS_ij = dW_ij where the pair's bit is set, else 0,   dQ_i = f_i Σ_j dS_ij k_j

This is the forward kernel's pipeline with other operands: dO [B, H, T, D] instead of q, V [B, H, S, D] instead of k,
and K instead of v. A bit is set if the score is positive, visible and not dropped; it takes the place of ReLU, so that
a pair needs two products instead of three:

    tensor cores   dw(j+1) = dO v(j+1)ᵀ │ dq += ds(j) k(j)             │ dw(j+2) ...
    other units    wait                 │ ds(j+1) = dw(j+1) where bits │ ...
"""

# mypy: allow-untyped-defs, allow-incomplete-defs

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import warpgroup_mma_wait

from relumt.attention.kernels.hopper.layouts import keep, load_words, pack, store_rows, unpack_operand, zeros
from relumt.attention.kernels.hopper.pipeline import (
    allocate,
    get_block,
    producer,
    receive,
    release,
    start_scores,
    start_sum,
    wait,
)
from relumt.attention.kernels.hopper.powers import scale_gradient
from relumt.attention.kernels.hopper.tiles import query_tile


@gluon.jit
def mask_gradients(s, word, first, dtype: gl.constexpr, CONFIG: gl.constexpr):
    """Round and keep where a bit is set: [64, block] float32 -> [64, block] as a left operand."""
    return unpack_operand(keep(pack(s, dtype), word, first), dtype, CONFIG.D)


@gluon.jit
def visit_keys(q, rings, w, count, blocks, first, words, CONFIG: gl.constexpr):
    """Sum up the gradients of the 64 queries of warpgroup w.

    Args:
        count, blocks, first: see `forward.visit_keys`.
        words: `Bits`, the block of them that has the queries as columns, and how many keys it has.

    Returns:
        dQ [64, D] without its factor, and the count with these blocks.
    """
    held, k_ring, v_ring = rings
    start, stop = blocks
    Bits, block, num_keys = words
    BN: gl.constexpr = CONFIG.block
    dtype: gl.constexpr = q.dtype
    o = zeros(CONFIG.D)
    i = count % CONFIG.stages
    wait(k_ring, i, count, CONFIG)
    s = start_scores(q, get_block(k_ring, i, CONFIG), CONFIG)
    word = load_words(Bits, block, start * BN, num_keys, BN)
    next_word = load_words(Bits, block, gl.minimum(start + 1, stop - 1) * BN, num_keys, BN)
    s = warpgroup_mma_wait(0, deps=(s,))
    release(k_ring, i)
    p = mask_gradients(s, word, first, dtype, CONFIG)
    for j in range(start + 1, stop):
        n = (count + 1) % CONFIG.stages
        wait(k_ring, n, count + 1, CONFIG)
        s = start_scores(q, get_block(k_ring, n, CONFIG), CONFIG)
        word = next_word  # loaded one block ahead: L2 takes as long as the products of a block
        next_word = load_words(Bits, block, gl.minimum(j + 1, stop - 1) * BN, num_keys, BN)
        o = start_sum(p, v_ring, i, count, o, CONFIG)
        s = warpgroup_mma_wait(1, deps=(s,))
        release(k_ring, n)
        next_p = mask_gradients(s, word, first, dtype, CONFIG)
        o, p = warpgroup_mma_wait(0, deps=(o, p))
        release(v_ring, i)
        p = next_p
        i = n
        count += 1
    release(held, w)
    o = start_sum(p, v_ring, i, count, o, CONFIG)
    o, p = warpgroup_mma_wait(0, deps=(o, p))
    release(v_ring, i)
    return o, count + 1


@gluon.jit
def consumer(w: gl.constexpr, inputs, CONFIG: gl.constexpr):
    """Compute the gradients of 64 queries of each tile."""
    rings, gradient, scaling, f_b, bits, padding, sizes = inputs
    H, T, S, num_tiles = sizes
    tiles_per_head = gl.cdiv(T, 64 * CONFIG.num_warpgroups)
    count = 0
    turn = 0
    for tile in range(gl.program_id(0), num_tiles, gl.num_programs(0)):
        head, first, blocks = query_tile(tile, w, tiles_per_head, padding, sizes, CONFIG)
        bh, b, _h = head
        # The last tile can begin after the last query, where there are no bits; its results are not stored.
        block = bh * gl.cdiv(T, 128) + gl.minimum(first, T - 1) // 128
        words = (bits, block, gl.cdiv(S, CONFIG.block) * CONFIG.block)
        q = receive(rings[0], w, turn, CONFIG)
        grad_q, count = visit_keys(q, rings, w, count, blocks, first, words, CONFIG)
        turn += 1  # noqa: SIM113 (Gluon has no enumerate)
        grad_q = scale_gradient(grad_q, gl.load(scaling.factor + b * f_b), scaling.scale, CONFIG)
        store_rows(gradient, grad_q, bh, first, H, T, CONFIG.D)


@gluon.jit(do_not_specialize=["f_b", "num_tiles"])
def backward_dq(
    q_desc, k_desc, v_desc, zeroed_k_desc, zeroed_v_desc, padding, gradient, scaling, f_b, bits, num_tiles,
    CONFIG: gl.constexpr,
):  # fmt: skip
    """Compute dQ with two warpgroups: their tiles of 128 queries are the blocks for which `dkdv` writes bits.

    Args:
        q_desc, k_desc, v_desc, zeroed_k_desc, zeroed_v_desc: descriptors of dO, V and K, see `forward`.
        padding, scaling, f_b: see `forward`; unless `has_factor`, dO contains factors and `scale`.
        gradient: `Strided` [B, H, T, D].
        bits: see `Stored`.
        num_tiles: B*H*ceil(T / 128).
    """
    rings = allocate(q_desc, k_desc, v_desc, CONFIG)
    sizes = (q_desc.shape[1], q_desc.shape[2], k_desc.shape[2], num_tiles)
    inputs = (rings, gradient, scaling, f_b, bits, padding, sizes)
    keys = (k_desc, v_desc, zeroed_k_desc, zeroed_v_desc)
    sources = ((q_desc,), (rings[0][0],), rings, keys, padding, sizes)
    gl.warp_specialize(
        [(consumer, (0, inputs, CONFIG)), (consumer, (1, inputs, CONFIG)), (producer, (sources, CONFIG))],
        [4, 1],
        [CONFIG.registers, 24],
    )
