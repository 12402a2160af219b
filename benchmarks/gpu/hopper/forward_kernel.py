"""ReLU attention on Hopper: output, sums of weights for each query, and dropout.

    o_i = f_i Σ_j ReLU(s_ij) v_j,   Σ_j w_ij = f_i Σ_j ReLU(s_ij),
    Σ_j w_ij ln w_ij = f_i (ln 2 Σ_j s_ij log2 s_ij + ln f_i Σ_j s_ij), over s_ij > 0   (s, w and f: see `kernel_parts`)

q is [B, H, T, D], k and v [B, H, S, D]. Each program visits tiles of 64 queries per warpgroup; one more warp loads. A
warpgroup computes the scores of block j + 1 while the tensor cores multiply the weights of block j by v. With DROPOUT,
kept pairs are not scaled: the factor must contain 1/(1 - p). Row statistics are those of the weights before dropout.
"""

from dropout_masks import kept_masks
from kernel_parts import add, allocate, mma_layout, operand_a, pack_relu, producer, split_columns, store_bits, unpack
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, warpgroup_mma, warpgroup_mma_wait

TINY = gl.constexpr(1.1754943508222875e-38)


@gluon.jit
def fast_log2(x):
    return gl.inline_asm_elementwise("lg2.approx.ftz.f32 $0, $1;", "=r,r", [x], dtype=gl.float32, is_pure=True, pack=1)


@gluon.jit
def cubic_log2(x):
    """Compute log2 within 1.1e-3 by integer instructions and a cubic that is exact at powers of two."""
    return gl.inline_asm_elementwise(
        """{ .reg .b32 m, e; .reg .f32 r;
        and.b32 m, $1, 0x007FFFFF; or.b32 m, m, 0x3F800000;
        shr.u32 e, $1, 23; add.u32 e, e, 0x4B000000;
        add.f32 e, e, 0fCB000081;
        fma.rn.f32 r, m, 0f3E2023AE, 0fBF85F0BB;
        fma.rn.f32 r, m, r, 0f4042D97C;
        add.f32 e, e, 0fBE1E3597;
        fma.rn.f32 $0, m, r, e; }""",
        "=r,r", [x], dtype=gl.float32, is_pure=True, pack=1,
    )  # fmt: skip


@gluon.jit
def sum_registers(x, BN: gl.constexpr):
    """Add up what a thread holds of a row, except two columns: [64, BN] -> [64, 8]."""
    return gl.reduce(x.reshape([64, BN // 8, 8]), 1, add)


@gluon.jit
def weigh(
    BN: gl.constexpr, D: gl.constexpr, ROW_STATS: gl.constexpr, CUBIC: gl.constexpr, DROPOUT: gl.constexpr,
    ROUNDS: gl.constexpr, s, stats_w, stats_l, Kept, first, col, bh, T, S, seed0, seed1, threshold,
):  # fmt: skip
    """Turn scores [64, BN] into weights without their factor, as a left operand, and update the row statistics."""
    if ROW_STATS:
        s = gl.maximum(s, TINY)
        stats_w += sum_registers(s, BN)
        if CUBIC:  # a quarter of the logarithms, on the units that add and multiply
            x = s.reshape([64, BN // 16, 2, 8]).permute([0, 1, 3, 2])
            a, b = gl.split(x)  # [64, BN/16, 8]: columns of even and odd groups of eight
            a0, a1 = gl.split(a.reshape([64, BN // 32, 2, 8]).permute([0, 1, 3, 2]))
            b0, b1 = gl.split(b.reshape([64, BN // 32, 2, 8]).permute([0, 1, 3, 2]))
            terms = a0 * fast_log2(a0) + a1 * fast_log2(a1) + b0 * fast_log2(b0) + b1 * cubic_log2(b1)
            stats_l += gl.convert_layout(gl.reduce(terms, 1, add), stats_l.type.layout, assert_trivial=True)
        else:
            stats_l += sum_registers(s * fast_log2(s), BN)
    even, odd = split_columns(s)
    packed = pack_relu(even, odd)
    if DROPOUT:
        masks = kept_masks(packed, first // 16, col, bh, seed0, seed1, threshold, BN, ROUNDS)
        packed = packed & masks
        store_bits(Kept, masks, bh * gl.cdiv(S, BN) + col, first, T, BN)
    return gl.convert_layout(unpack(packed), operand_a(D)), stats_w, stats_l


@gluon.jit
def consumer(
    w: gl.constexpr, NWG: gl.constexpr, BN: gl.constexpr, STAGES: gl.constexpr, D: gl.constexpr,
    ROW_STATS: gl.constexpr, CUBIC: gl.constexpr, DROPOUT: gl.constexpr, ROUNDS: gl.constexpr, buffers, tensors, sizes,
):  # fmt: skip
    q_bufs, k_bufs, v_bufs, q_full, q_empty, k_full, k_empty, v_full, v_empty = buffers
    Out, o_b, o_h, o_t, Factor, f_b, f_t, WeightSum, WLogW, Kept, seed0, seed1, threshold = tensors
    H, T, S, num_tiles = sizes
    BM: gl.constexpr = 64 * NWG
    s_layout: gl.constexpr = mma_layout(BN)
    o_layout: gl.constexpr = mma_layout(D)
    tiles_per_head = gl.cdiv(T, BM)
    blocks = gl.cdiv(S, BN)
    count = 0
    turn = 0
    rows = gl.arange(0, 64, layout=gl.SliceLayout(1, o_layout))
    cols = gl.arange(0, D, layout=gl.SliceLayout(0, o_layout))
    zero_s = gl.zeros([64, BN], gl.float32, s_layout)
    empty_stats = sum_registers(zero_s, BN)
    for tile in range(gl.program_id(0), num_tiles, gl.num_programs(0)):
        bh = tile // tiles_per_head
        b = bh // H
        h = bh % H
        first = (tile % tiles_per_head) * BM + 64 * w
        q = q_bufs.index(w).reshape([64, D])
        stats_w = empty_stats
        stats_l = empty_stats
        mbarrier.wait(q_full.index(w), turn & 1)
        o = gl.zeros([64, D], gl.float32, o_layout)
        i = count % STAGES
        mbarrier.wait(k_full.index(i), count // STAGES & 1)
        s = warpgroup_mma(q, k_bufs.index(i).reshape([BN, D]).permute((1, 0)), zero_s, use_acc=False, is_async=True)
        s = warpgroup_mma_wait(0, deps=(s,))
        mbarrier.arrive(k_empty.index(i), count=1)
        p, stats_w, stats_l = weigh(
            BN, D, ROW_STATS, CUBIC, DROPOUT, ROUNDS,
            s, stats_w, stats_l, Kept, first, 0, bh, T, S, seed0, seed1, threshold,
        )  # fmt: skip
        for j in range(1, blocks):
            n = (count + 1) % STAGES
            mbarrier.wait(k_full.index(n), (count + 1) // STAGES & 1)
            s = warpgroup_mma(q, k_bufs.index(n).reshape([BN, D]).permute((1, 0)), zero_s, use_acc=False, is_async=True)
            mbarrier.wait(v_full.index(i), count // STAGES & 1)
            o = warpgroup_mma(p, v_bufs.index(i).reshape([BN, D]), o, is_async=True)
            s = warpgroup_mma_wait(1, deps=(s,))
            mbarrier.arrive(k_empty.index(n), count=1)
            next_p, stats_w, stats_l = weigh(
                BN, D, ROW_STATS, CUBIC, DROPOUT, ROUNDS,
                s, stats_w, stats_l, Kept, first, j, bh, T, S, seed0, seed1, threshold,
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
        queries = first + rows
        f = gl.load(Factor + b * f_b + queries * f_t, mask=queries < T, other=0.0)
        o = o * f[:, None]
        offsets = b.to(gl.int64) * o_b + h * o_h + queries[:, None].to(gl.int64) * o_t + cols[None, :]
        gl.store(Out + offsets, o.to(Out.dtype.element_ty), mask=(queries < T)[:, None])
        if ROW_STATS:
            sum_w = gl.reduce(stats_w, 1, add)
            sum_l = gl.reduce(stats_l, 1, add)
            stat_rows = first + gl.arange(0, 64, layout=sum_w.type.layout)
            ff = gl.load(Factor + b * f_b + stat_rows * f_t, mask=stat_rows < T, other=1.0)
            w_log_w = ff * 0.6931471805599453 * (sum_l + gl.log2(ff) * sum_w)
            gl.store(WeightSum + bh * T + stat_rows, sum_w * ff, mask=stat_rows < T)
            gl.store(WLogW + bh * T + stat_rows, w_log_w, mask=stat_rows < T)


@gluon.jit(do_not_specialize=["S", "f_b", "f_t", "seed0", "seed1", "threshold"])
def forward(
    q_desc, k_desc, v_desc, Out, o_b, o_h, o_t, Factor, f_b, f_t, WeightSum, WLogW, Kept, seed0, seed1, threshold,
    H, T, S, num_tiles, NWG: gl.constexpr, BN: gl.constexpr, STAGES: gl.constexpr, D: gl.constexpr,
    ROW_STATS: gl.constexpr, CUBIC: gl.constexpr, DROPOUT: gl.constexpr, ROUNDS: gl.constexpr, CREGS: gl.constexpr,
):  # fmt: skip
    """Compute attention.

    Args:
        q_desc, k_desc, v_desc: descriptors of q, k and v.
        Out: [B, H, T, D] with strides o_b, o_h, o_t, 1.
        Factor: f [B, T] with strides f_b, f_t.
        WeightSum, WLogW: [B, H, T], if ROW_STATS.
        Kept: [B*H, S/BN, T/2, 8, 2] int16, if DROPOUT: words of `kernel_parts`, with queries as rows.
        seed0, seed1, threshold, ROUNDS: see `dropout_masks`.
        num_tiles: B*H*ceil(T / (64*NWG)).
        NWG, CREGS: number of warpgroups that compute, and their registers per thread.
        BN, STAGES: keys of a block, and number of its buffers.
        CUBIC: compute a quarter of the logarithms by `cubic_log2`.
    """
    buffers = allocate(q_desc, k_desc, v_desc, NWG, BN, STAGES, D)
    # Constants stay out of these tuples, because an assignment would turn them into run-time values.
    descriptors = (q_desc, k_desc, v_desc)
    tensors = (Out, o_b, o_h, o_t, Factor, f_b, f_t, WeightSum, WLogW, Kept, seed0, seed1, threshold)
    sizes = (H, T, S, num_tiles)
    if NWG == 2:
        gl.warp_specialize(
            [
                (consumer, (0, NWG, BN, STAGES, D, ROW_STATS, CUBIC, DROPOUT, ROUNDS, buffers, tensors, sizes)),
                (consumer, (1, NWG, BN, STAGES, D, ROW_STATS, CUBIC, DROPOUT, ROUNDS, buffers, tensors, sizes)),
                (producer, (NWG, BN, STAGES, D, descriptors, buffers, sizes)),
            ],
            [4, 1],
            [CREGS, 24],
        )
    else:
        gl.warp_specialize(
            [
                (consumer, (0, NWG, BN, STAGES, D, ROW_STATS, CUBIC, DROPOUT, ROUNDS, buffers, tensors, sizes)),
                (consumer, (1, NWG, BN, STAGES, D, ROW_STATS, CUBIC, DROPOUT, ROUNDS, buffers, tensors, sizes)),
                (consumer, (2, NWG, BN, STAGES, D, ROW_STATS, CUBIC, DROPOUT, ROUNDS, buffers, tensors, sizes)),
                (producer, (NWG, BN, STAGES, D, descriptors, buffers, sizes)),
            ],
            [4, 4, 1],
            [CREGS, CREGS, 24],
        )
