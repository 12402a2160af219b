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
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, warpgroup_mma, warpgroup_mma_wait

from relumt.attention.kernels.hopper.dropout import kept_masks
from relumt.attention.kernels.hopper.hidden import hide_future, hide_padding
from relumt.attention.kernels.hopper.layouts import (
    add,
    mma_layout,
    operand_a,
    pack_relu,
    split_columns,
    store_bits,
    unpack,
)
from relumt.attention.kernels.hopper.pipeline import allocate, producer
from relumt.attention.kernels.hopper.powers import (
    at_least_tiny,
    fast_log2,
    late_factor,
    load_shift,
    power,
    rectify,
    shift_scores,
)
from relumt.attention.kernels.hopper.tiles import key_blocks, load_bounds, locate

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
def weigh(
    s, stats_w, stats_l, first, block, b, bh, shift, Kept, dropout, padding, T, S, D: gl.constexpr,
    dtype: gl.constexpr, CAUSAL: gl.constexpr, PADDED: gl.constexpr, ROW_SUMS: gl.constexpr, DROPOUT: gl.constexpr,
    EXPONENT: gl.constexpr, SHIFTED: gl.constexpr,
):  # fmt: skip
    """Turn scores [64, BN] into weights without their factor, as a left operand, and update the row sums."""
    BN: gl.constexpr = s.shape[1]
    s = shift_scores(s, shift, SHIFTED)
    if CAUSAL:
        s = hide_future(s, first, block * BN, T, S, False)
    if SHIFTED and ROW_SUMS and (PADDED or not CAUSAL):
        Mixed, Visible = padding
        s = hide_padding(s, Mixed, Visible, b * gl.cdiv(S, BN) + block, block * BN, S, PADDED)
    if ROW_SUMS:
        s = at_least_tiny(s) if ROW_SUMS == 2 else rectify(s)
    w = power(s, EXPONENT)
    if ROW_SUMS:
        stats_w += sum_registers(w)
    if ROW_SUMS == 2:
        stats_l += sum_registers(w * fast_log2(s))
    even, odd = split_columns(w)
    packed = pack_relu(even, odd, dtype)
    if DROPOUT:
        seed0, seed1, threshold = dropout
        masks = kept_masks(packed, first // 16, block, bh, seed0, seed1, threshold, BN)
        packed = packed & masks
        store_bits(Kept, masks, bh * gl.cdiv(S, BN) + block, first, gl.cdiv(T, 128) * 128)
    return gl.convert_layout(unpack(packed, dtype), operand_a(D)), stats_w, stats_l


@gluon.jit
def consumer(
    w: gl.constexpr, NWG: gl.constexpr, BN: gl.constexpr, STAGES: gl.constexpr, D: gl.constexpr, CAUSAL: gl.constexpr,
    PADDED: gl.constexpr, ROW_SUMS: gl.constexpr, DROPOUT: gl.constexpr, EXPONENT: gl.constexpr,
    SHIFTED: gl.constexpr, inputs,
):  # fmt: skip
    """Compute what belongs to 64 queries of each tile."""
    buffers, tensors, padding, sizes = inputs
    q_bufs, k_bufs, v_bufs, barriers = buffers
    q_full, q_empty, k_full, k_empty, v_full, v_empty = barriers
    Out, o_b, o_h, o_t, Factor, f_b, f_t, Bias, bias_b, WeightSum, WLogW, Kept, Seed, threshold, scale = tensors
    KeyBounds, Mixed, Visible = padding
    H, T, S, num_tiles = sizes
    dtype: gl.constexpr = q_bufs.dtype
    BM: gl.constexpr = 64 * NWG
    tiles_per_head = gl.cdiv(T, BM)
    count = 0
    turn = 0
    zero_s = gl.zeros([64, BN], gl.float32, mma_layout(BN))
    empty_stats = sum_registers(zero_s)
    dropout = (0, 0, threshold)
    if DROPOUT:
        seed = gl.load(Seed)
        dropout = (seed.to(gl.int32), (seed >> 32).to(gl.int32), threshold)
    for tile in range(gl.program_id(0), num_tiles, gl.num_programs(0)):
        bh, position = locate(tile, tiles_per_head, CAUSAL)
        b = bh // H
        first = position * BM + 64 * w
        first_real, after_real = load_bounds(KeyBounds, b, S, PADDED)
        start, stop = key_blocks(first_real, after_real, position * BM + BM - 1, T, S, CAUSAL)
        shift = load_shift(Factor, f_b, Bias, bias_b, b, SHIFTED)
        q = q_bufs.index(w).reshape([64, D])
        stats_w = empty_stats
        stats_l = empty_stats
        mbarrier.wait(q_full.index(w), turn & 1)
        o = gl.zeros([64, D], gl.float32, mma_layout(D))
        i = count % STAGES
        mbarrier.wait(k_full.index(i), count // STAGES & 1)
        s = warpgroup_mma(q, k_bufs.index(i).reshape([BN, D]).permute((1, 0)), zero_s, use_acc=False, is_async=True)
        s = warpgroup_mma_wait(0, deps=(s,))
        mbarrier.arrive(k_empty.index(i), count=1)
        p, stats_w, stats_l = weigh(
            s, stats_w, stats_l, first, start, b, bh, shift, Kept, dropout, (Mixed, Visible), T, S, D, dtype, CAUSAL,
            PADDED, ROW_SUMS, DROPOUT, EXPONENT, SHIFTED,
        )  # fmt: skip
        for j in range(start + 1, stop):
            n = (count + 1) % STAGES
            mbarrier.wait(k_full.index(n), (count + 1) // STAGES & 1)
            s = warpgroup_mma(q, k_bufs.index(n).reshape([BN, D]).permute((1, 0)), zero_s, use_acc=False, is_async=True)
            mbarrier.wait(v_full.index(i), count // STAGES & 1)
            o = warpgroup_mma(p, v_bufs.index(i).reshape([BN, D]), o, is_async=True)
            s = warpgroup_mma_wait(1, deps=(s,))
            mbarrier.arrive(k_empty.index(n), count=1)
            next_p, stats_w, stats_l = weigh(
                s, stats_w, stats_l, first, j, b, bh, shift, Kept, dropout, (Mixed, Visible), T, S, D, dtype, CAUSAL,
                PADDED, ROW_SUMS, DROPOUT, EXPONENT, SHIFTED,
            )  # fmt: skip
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
        store_output(Out, o_b, o_h, o_t, Factor, f_b, f_t, scale, o, bh, first, H, T, D, EXPONENT, SHIFTED)
        if ROW_SUMS:
            factors = (Factor, f_b, f_t)
            store_sums(WeightSum, WLogW, factors, stats_w, stats_l, bh, first, H, T, ROW_SUMS, EXPONENT, SHIFTED)


@gluon.jit
def store_output(
    Out, o_b, o_h, o_t, Factor, f_b, f_t, scale, o, bh, first, H, T, D: gl.constexpr, EXPONENT: gl.constexpr,
    SHIFTED: gl.constexpr,
):  # fmt: skip
    """Store o [64, D] times its queries' factors and `scale`; in float16 its largest number stands in for others."""
    queries = first + gl.arange(0, 64, layout=gl.SliceLayout(1, mma_layout(D)))
    dims = gl.arange(0, D, layout=gl.SliceLayout(0, mma_layout(D)))
    b = bh // H
    f = gl.load(Factor + b * f_b + queries * f_t, mask=queries < T, other=0.0)
    f = late_factor(f, EXPONENT, SHIFTED) * scale
    o = o * f[:, None]
    if Out.dtype.element_ty == gl.float16:
        o = clamp_to_float16(o)
    offsets = b.to(gl.int64) * o_b + (bh % H).to(gl.int64) * o_h + queries[:, None].to(gl.int64) * o_t + dims[None, :]
    gl.store(Out + offsets, o.to(Out.dtype.element_ty), mask=(queries < T)[:, None])


@gluon.jit
def store_sums(
    WeightSum, WLogW, factors, stats_w, stats_l, bh, first, H, T, ROW_SUMS: gl.constexpr, EXPONENT: gl.constexpr,
    SHIFTED: gl.constexpr,
):  # fmt: skip
    """Add up what the threads of a row hold, and store the sums."""
    Factor, f_b, f_t = factors
    sum_w = gl.reduce(stats_w, 1, add)
    if ROW_SUMS == 2:
        sum_l = gl.reduce(stats_l, 1, add)
    queries = first + gl.arange(0, 64, layout=sum_w.type.layout)
    f = gl.load(Factor + bh // H * f_b + queries * f_t, mask=queries < T, other=1.0)
    f = late_factor(f, EXPONENT, SHIFTED)
    at = bh.to(gl.int64) * T + queries
    gl.store(WeightSum + at, sum_w * f, mask=queries < T)
    if ROW_SUMS == 2:
        gl.store(WLogW + at, f * LN_2 * (EXPONENT * sum_l + gl.log2(f) * sum_w), mask=queries < T)


@gluon.jit(do_not_specialize=["f_b", "f_t", "bias_b", "threshold", "H", "T", "S", "num_tiles"])
def forward(
    q_desc, k_desc, v_desc, zeroed_k_desc, zeroed_v_desc, KeyBounds, Mixed, Visible, Out, o_b, o_h, o_t,
    Factor, f_b, f_t, Bias, bias_b, WeightSum, WLogW, Kept, Seed, threshold, scale, H, T, S, num_tiles,
    NWG: gl.constexpr, BN: gl.constexpr, STAGES: gl.constexpr, D: gl.constexpr, CREGS: gl.constexpr,
    CAUSAL: gl.constexpr, PADDED: gl.constexpr, ROW_SUMS: gl.constexpr, DROPOUT: gl.constexpr,
    EXPONENT: gl.constexpr, SHIFTED: gl.constexpr,
):  # fmt: skip
    """Compute attention.

    Args:
        q_desc, k_desc, v_desc: descriptors of q, k and v.
        zeroed_k_desc, zeroed_v_desc: if PADDED, of copies whose hidden keys are 0, in blocks that have hidden keys.
        KeyBounds, Mixed, Visible: see `prepare.Padding`, if PADDED.
        Out: [B, H, T, D] with strides o_b, o_h, o_t, 1.
        Factor: f [B, T] with strides f_b, f_t; if SHIFTED, f_t is 0.
        Bias: b [B] with stride bias_b, if SHIFTED.
        WeightSum, WLogW: [B, H, T], if ROW_SUMS is 1 or 2, and if it is 2.
        Kept: [B*H, S/BN, T/2, 8, 2] int16, if DROPOUT: words of `layouts`, with queries as rows; T is rounded up to a
            multiple of 128.
        Seed: one int64, if DROPOUT. It is read here, so that a CUDA graph can change it.
        threshold: see `dropout`.
        scale: what the output is multiplied by, besides its factors.
        EXPONENT, SHIFTED: see `powers`.
        num_tiles: B*H*ceil(T / (64*NWG)).
        NWG, CREGS: number of warpgroups that compute, and their registers per thread.
        BN, STAGES: keys of a block, and number of its buffers.
    """
    buffers = allocate(q_desc, k_desc, v_desc, NWG, BN, STAGES, D)
    # Constants stay out of these tuples, because an assignment would turn them into run-time values.
    held = ((q_desc, buffers[0]),)
    keys = (k_desc, v_desc, zeroed_k_desc, zeroed_v_desc)
    tensors = (Out, o_b, o_h, o_t, Factor, f_b, f_t, Bias, bias_b, WeightSum, WLogW, Kept, Seed, threshold, scale)
    sizes = (H, T, S, num_tiles)
    padding = (KeyBounds, Mixed)
    inputs = (buffers, tensors, (KeyBounds, Mixed, Visible), sizes)
    if NWG == 2:
        gl.warp_specialize(
            [
                (consumer, (0, NWG, BN, STAGES, D, CAUSAL, PADDED, ROW_SUMS, DROPOUT, EXPONENT, SHIFTED, inputs)),
                (consumer, (1, NWG, BN, STAGES, D, CAUSAL, PADDED, ROW_SUMS, DROPOUT, EXPONENT, SHIFTED, inputs)),
                (producer, (NWG, BN, STAGES, D, CAUSAL, PADDED, held, keys, buffers, padding, sizes)),
            ],
            [4, 1],
            [CREGS, 24],
        )
    else:
        gl.warp_specialize(
            [
                (consumer, (0, NWG, BN, STAGES, D, CAUSAL, PADDED, ROW_SUMS, DROPOUT, EXPONENT, SHIFTED, inputs)),
                (consumer, (1, NWG, BN, STAGES, D, CAUSAL, PADDED, ROW_SUMS, DROPOUT, EXPONENT, SHIFTED, inputs)),
                (consumer, (2, NWG, BN, STAGES, D, CAUSAL, PADDED, ROW_SUMS, DROPOUT, EXPONENT, SHIFTED, inputs)),
                (producer, (NWG, BN, STAGES, D, CAUSAL, PADDED, held, keys, buffers, padding, sizes)),
            ],
            [4, 4, 1],
            [CREGS, CREGS, 24],
        )
