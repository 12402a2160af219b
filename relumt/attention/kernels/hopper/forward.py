"""ReLU attention on Hopper, also with powers of ReLU: output, sums of weights for each query, and dropout.

    o_i = F_i Σ_j r_ij^p v_j,   r_ij = ReLU(s_ij),   s_ij = q_i·k_j,   Σ_j w_ij = F_i Σ_j r_ij^p,
    Σ_j w_ij ln w_ij = F_i (p ln 2 Σ_j r_ij^p log2 r_ij + ln F_i Σ_j r_ij^p), over r_ij > 0

r and F are those of `powers`; with p = 1, F is the factor f.

q is [B, H, T, D], k and v [B, H, S, D]. Each program visits tiles of 64 queries per warpgroup; one more warp loads
(`pipeline`). A warpgroup computes the weights of block j + 1 while the tensor cores multiply those of block j by v:

    tensor cores   s(j+1) = q k(j+1)ᵀ │ o += p(j) v(j)         │ s(j+2) ...
    other units    wait               │ p(j+1) = r(j+1)^p      │ ...

Kept pairs are not scaled, but the output is. Row sums are those of the weights before dropout.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import warpgroup_mma_wait

from relumt.attention.kernels.hopper.dropout import kept_masks
from relumt.attention.kernels.hopper.hidden import hide_future, hide_padding
from relumt.attention.kernels.hopper.layouts import (
    add,
    mma_layout,
    pack_relu,
    store_bits,
    store_rows,
    unpack_operand,
    zeros,
)
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
from relumt.attention.kernels.hopper.powers import (
    at_least_tiny,
    fast_log2,
    late_factor,
    load_shift,
    power,
    rectify,
    shift_scores,
)
from relumt.attention.kernels.hopper.tiles import query_tile

LN_2 = gl.constexpr(0.6931471805599453)


@gluon.jit
def clamp_to_float16(x):
    """Return x between -65504 and 65504; NaN stays NaN."""
    return gl.inline_asm_elementwise(
        "{ .reg .f32 t; min.NaN.f32 t, $1, 0f477FE000; max.NaN.f32 $0, t, 0fC77FE000; }",
        "=r,r", [x], dtype=gl.float32, is_pure=True, pack=1,
    )  # fmt: skip


@gluon.jit
def sum_registers(x):
    """Add up what a thread holds of a row, except two columns: [64, N] -> [64, 8]."""
    return gl.reduce(x.reshape([64, x.shape[1] // 8, 8]), 1, add)


@gluon.jit
def weigh(s, sums, block, head, first, shift, dropout, padding, sizes, dtype: gl.constexpr, CONFIG: gl.constexpr):
    """Turn scores [64, block] into weights without their factor, as a left operand, and update the row sums."""
    bh, b, _ = head
    sum_w, sum_l = sums
    _, T, S, _ = sizes
    BN: gl.constexpr = CONFIG.block
    s = shift_scores(s, shift, CONFIG)
    if CONFIG.is_causal:
        s = hide_future(s, first, block * BN, T, S, False)
    if CONFIG.is_shifted and CONFIG.row_sums and (CONFIG.is_padded or not CONFIG.is_causal):
        s = hide_padding(s, padding, b * gl.cdiv(S, BN) + block, block * BN, S, CONFIG.is_padded)
    if CONFIG.row_sums:
        s = at_least_tiny(s) if CONFIG.row_sums == 2 else rectify(s)
    w = power(s, CONFIG.exponent)
    if CONFIG.row_sums:
        sum_w += sum_registers(w)
    if CONFIG.row_sums == 2:
        sum_l += sum_registers(w * fast_log2(s))
    packed = pack_relu(w, dtype)
    if CONFIG.has_dropout:
        Kept, seed0, seed1, threshold = dropout
        masks = kept_masks(packed, first // 16, block, bh, seed0, seed1, threshold, BN)
        packed = packed & masks
        store_bits(Kept, masks, bh * gl.cdiv(S, BN) + block, first, gl.cdiv(T, 128) * 128)
    return unpack_operand(packed, dtype, CONFIG.D), (sum_w, sum_l)


@gluon.jit
def visit_keys(q, rings, w, count, blocks, head, first, shift, dropout, padding, sizes, CONFIG: gl.constexpr):
    """Compute what the 64 queries of warpgroup w see.

    Args:
        count: number of blocks that were visited before.
        head, first, blocks: see `query_tile`.

    Returns:
        o [64, D] without its factor, what threads hold of row sums, and the count with these blocks.
    """
    held, k_ring, v_ring = rings
    start, stop = blocks
    dtype: gl.constexpr = q.dtype
    sums = (sum_registers(zeros(CONFIG.block)), sum_registers(zeros(CONFIG.block)))
    o = zeros(CONFIG.D)
    i = count % CONFIG.stages
    wait(k_ring, i, count, CONFIG)
    s = start_scores(q, get_block(k_ring, i, CONFIG), CONFIG)
    s = warpgroup_mma_wait(0, deps=(s,))
    release(k_ring, i)
    p, sums = weigh(s, sums, start, head, first, shift, dropout, padding, sizes, dtype, CONFIG)
    for j in range(start + 1, stop):
        n = (count + 1) % CONFIG.stages
        wait(k_ring, n, count + 1, CONFIG)
        s = start_scores(q, get_block(k_ring, n, CONFIG), CONFIG)
        o = start_sum(p, v_ring, i, count, o, CONFIG)
        s = warpgroup_mma_wait(1, deps=(s,))
        release(k_ring, n)
        next_p, sums = weigh(s, sums, j, head, first, shift, dropout, padding, sizes, dtype, CONFIG)
        o, p = warpgroup_mma_wait(0, deps=(o, p))
        release(v_ring, i)
        p = next_p
        i = n
        count += 1
    release(held, w)
    o = start_sum(p, v_ring, i, count, o, CONFIG)
    o, p = warpgroup_mma_wait(0, deps=(o, p))
    release(v_ring, i)
    return o, sums, count + 1


@gluon.jit
def consumer(w: gl.constexpr, inputs, CONFIG: gl.constexpr):
    """Compute what belongs to 64 queries of each tile."""
    rings, output, scaling, strides, sums, dropout, padding, sizes = inputs
    f_b, _, bias_b = strides
    H, T, _, num_tiles = sizes
    tiles_per_head = gl.cdiv(T, 64 * CONFIG.num_warpgroups)
    count = 0
    turn = 0
    decisions = (dropout.kept, 0, 0, dropout.threshold)
    if CONFIG.has_dropout:
        seed = gl.load(dropout.seed)
        decisions = (dropout.kept, seed.to(gl.int32), (seed >> 32).to(gl.int32), dropout.threshold)
    for tile in range(gl.program_id(0), num_tiles, gl.num_programs(0)):
        head, first, blocks = query_tile(tile, w, tiles_per_head, padding, sizes, CONFIG)
        bh, b, _h = head
        shift = load_shift(scaling, f_b, bias_b, b, CONFIG)
        q = receive(rings[0], w, turn, CONFIG)
        o, row_sums, count = visit_keys(
            q, rings, w, count, blocks, head, first, shift, decisions, padding, sizes, CONFIG
        )
        turn += 1  # noqa: SIM113 (Gluon has no enumerate)
        store_output(output, scaling, strides, o, bh, first, H, T, CONFIG)
        if CONFIG.row_sums:
            store_sums(sums, scaling, strides, row_sums, bh, first, H, T, CONFIG)


@gluon.jit
def store_output(output, scaling, strides, o, bh, first, H, T, CONFIG: gl.constexpr):
    """Store o [64, D] times its queries' factors and `scale`; in float16 its largest number stands in for others."""
    f_b, f_t, _ = strides
    queries = first + gl.arange(0, 64, layout=gl.SliceLayout(1, mma_layout(CONFIG.D)))
    b = bh // H
    f = gl.load(scaling.factor + b * f_b + queries * f_t, mask=queries < T, other=0.0)
    o = o * (late_factor(f, CONFIG) * scaling.scale)[:, None]
    if output.data.dtype.element_ty == gl.float16:
        o = clamp_to_float16(o)
    store_rows(output, o, bh, first, H, T, CONFIG.D)


@gluon.jit
def store_sums(sums, scaling, strides, row_sums, bh, first, H, T, CONFIG: gl.constexpr):
    """Add up what the threads of a row hold, and store the sums."""
    f_b, f_t, _ = strides
    sum_w = gl.reduce(row_sums[0], 1, add)
    if CONFIG.row_sums == 2:
        sum_l = gl.reduce(row_sums[1], 1, add)
    queries = first + gl.arange(0, 64, layout=sum_w.type.layout)
    f = gl.load(scaling.factor + bh // H * f_b + queries * f_t, mask=queries < T, other=1.0)
    f = late_factor(f, CONFIG)
    at = bh.to(gl.int64) * T + queries
    gl.store(sums.weight + at, sum_w * f, mask=queries < T)
    if CONFIG.row_sums == 2:
        gl.store(sums.w_log_w + at, f * LN_2 * (CONFIG.exponent * sum_l + gl.log2(f) * sum_w), mask=queries < T)


@gluon.jit(do_not_specialize=["f_b", "f_t", "bias_b", "num_tiles"])
def forward(
    q_desc, k_desc, v_desc, zeroed_k_desc, zeroed_v_desc, padding, output, scaling, f_b, f_t, bias_b, sums, dropout,
    num_tiles, CONFIG: gl.constexpr,
):  # fmt: skip
    """Compute attention.

    Args:
        q_desc, k_desc, v_desc: descriptors of q, k and v, whose shapes contain H, T and S.
        zeroed_k_desc, zeroed_v_desc: if `is_padded`, of copies that are 0 at hidden keys, in blocks that have some.
        padding, scaling, dropout: `Padding`, `Scaling`, `Dropout` of `arguments`.
        output: `Strided` [B, H, T, D].
        f_b, f_t, bias_b: strides of `scaling`; if `is_shifted`, f_t is 0.
        sums: `RowSums` [B, H, T].
        num_tiles: B*H*ceil(T / (64 * number of warpgroups)).
    """
    rings = allocate(q_desc, k_desc, v_desc, CONFIG)
    sizes = (q_desc.shape[1], q_desc.shape[2], k_desc.shape[2], num_tiles)
    inputs = (rings, output, scaling, (f_b, f_t, bias_b), sums, dropout, padding, sizes)
    keys = (k_desc, v_desc, zeroed_k_desc, zeroed_v_desc)
    sources = ((q_desc,), (rings[0][0],), rings, keys, padding, sizes)
    if CONFIG.num_warpgroups == 2:
        gl.warp_specialize(
            [(consumer, (0, inputs, CONFIG)), (consumer, (1, inputs, CONFIG)), (producer, (sources, CONFIG))],
            [4, 1],
            [CONFIG.registers, 24],
        )
    else:
        gl.warp_specialize(
            [
                (consumer, (0, inputs, CONFIG)),
                (consumer, (1, inputs, CONFIG)),
                (consumer, (2, inputs, CONFIG)),
                (producer, (sources, CONFIG)),
            ],
            [4, 4, 1],
            [CONFIG.registers, CONFIG.registers, 24],
        )
