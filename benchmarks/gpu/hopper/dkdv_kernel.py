"""Gradients of the keys and values of ReLU attention on Hopper, and bits for `dq_kernel`.

    dV_j = f Σ_i ReLU(s_ij) dO_i,   dW = dO Vᵀ,   dK_j = f Σ_i [s_ij > 0] dW_ij q_i   (s and f: see `kernel_parts`)

A sentence has one factor f. q and dO are [B, H, T, D], k and v [B, H, S, D]; a pair takes four products. Each of two
warpgroups holds 64 keys and visits blocks of BT queries; one more warp loads. Tiles are [keys, queries], so that Wᵀ and
dSᵀ are left operands from registers. With BITS, one bit per pair tells which pairs pass a gradient (s_ij > 0), so that
the gradient of q needs two products instead of three.
"""

from kernel_parts import mma_layout, operand_a, pack, pack_relu, split_columns, store_bits, tma_load, unpack
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    warpgroup_mma,
    warpgroup_mma_wait,
)


@gluon.jit
def relu_bf16(x):
    """Apply ReLU and round to bfloat16, one instruction for two numbers."""
    return gl.inline_asm_elementwise(
        "cvt.rn.relu.bf16x2.f32 $0, $2, $1;", "=r,r,r", [x], dtype=gl.bfloat16, is_pure=True, pack=2
    )


@gluon.jit
def pass_where_positive(grad, p):
    """Round `grad` to bfloat16, 0 where p (bfloat16, not negative) is 0; three instructions for two pairs."""
    return gl.inline_asm_elementwise(
        "{ .reg .b32 d, m, z; mov.b32 z, 0; cvt.rn.bf16x2.f32 d, $2, $1; "
        "set.gt.u32.bf16x2 m, $3, z; and.b32 $0, d, m; }",
        "=r,r,r,r", [grad, p], dtype=gl.bfloat16, is_pure=True, pack=2,
    )  # fmt: skip


@gluon.jit
def positive_mask(p):
    """Return 0xFFFF in each half of a register where its bfloat16 number is positive, else 0."""
    return gl.inline_asm_elementwise(
        "{ .reg .b32 z; mov.b32 z, 0; set.gt.u32.bf16x2 $0, $1, z; }",
        "=r,r", [p], dtype=gl.int32, is_pure=True, pack=1,
    )  # fmt: skip


@gluon.jit
def load_tiles(
    NWG: gl.constexpr, BT: gl.constexpr, STAGES: gl.constexpr, D: gl.constexpr, descriptors, buffers, sizes
):  # fmt: skip
    k_desc, v_desc, q_desc, do_desc = descriptors
    k_bufs, v_bufs, q_bufs, do_bufs, kv_full, kv_empty, q_full, q_empty, do_full, do_empty = buffers
    H, T, S, num_tiles = sizes
    BN: gl.constexpr = 64 * NWG
    tiles_per_head = gl.cdiv(S, BN)
    blocks = gl.cdiv(T, BT)
    count = 0
    turn = 0
    for tile in range(gl.program_id(0), num_tiles, gl.num_programs(0)):
        bh = tile // tiles_per_head
        b = bh // H
        h = bh % H
        first = (tile % tiles_per_head) * BN
        for w in gl.static_range(NWG):
            mbarrier.wait(kv_empty.index(w), (turn & 1) ^ 1)
            mbarrier.expect(kv_full.index(w), 2 * 64 * D * 2)
            tma_load(k_desc, [b, h, first + 64 * w, 0], kv_full.index(w), k_bufs.index(w))
            tma_load(v_desc, [b, h, first + 64 * w, 0], kv_full.index(w), v_bufs.index(w))
        for j in range(blocks):
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
    w: gl.constexpr, NWG: gl.constexpr, BT: gl.constexpr, STAGES: gl.constexpr, D: gl.constexpr, BITS: gl.constexpr,
    buffers, tensors, sizes,
):  # fmt: skip
    k_bufs, v_bufs, q_bufs, do_bufs, kv_full, kv_empty, q_full, q_empty, do_full, do_empty = buffers
    GradK, gk_b, gk_h, gk_s, GradV, gv_b, gv_h, gv_s, Factor, f_b, Bits = tensors
    H, T, S, num_tiles = sizes
    BN: gl.constexpr = 64 * NWG
    s_layout: gl.constexpr = mma_layout(BT)
    acc_layout: gl.constexpr = mma_layout(D)
    a_layout: gl.constexpr = operand_a(D)
    tiles_per_head = gl.cdiv(S, BN)
    blocks = gl.cdiv(T, BT)
    count = 0
    turn = 0
    rows = gl.arange(0, 64, layout=gl.SliceLayout(1, acc_layout))
    cols = gl.arange(0, D, layout=gl.SliceLayout(0, acc_layout))
    for tile in range(gl.program_id(0), num_tiles, gl.num_programs(0)):
        bh = tile // tiles_per_head
        b = bh // H
        h = bh % H
        first = (tile % tiles_per_head) * BN + 64 * w
        k = k_bufs.index(w).reshape([64, D])
        v = v_bufs.index(w).reshape([64, D])
        grad_k = gl.zeros([64, D], gl.float32, acc_layout)
        grad_v = gl.zeros([64, D], gl.float32, acc_layout)
        zero = gl.zeros([64, BT], gl.float32, s_layout)
        mbarrier.wait(kv_full.index(w), turn & 1)
        for j in range(blocks):
            i = count % STAGES
            phase = count // STAGES & 1
            q = q_bufs.index(i).reshape([BT, D])
            do = do_bufs.index(i).reshape([BT, D])
            mbarrier.wait(q_full.index(i), phase)
            s = warpgroup_mma(k, q.permute((1, 0)), zero, use_acc=False, is_async=True)  # [64, BT]
            mbarrier.wait(do_full.index(i), phase)
            grad_p = warpgroup_mma(v, do.permute((1, 0)), zero, use_acc=False, is_async=True)  # [64, BT]
            s = warpgroup_mma_wait(1, deps=(s,))
            if BITS:
                s_even, s_odd = split_columns(s)
                packed = pack_relu(s_even, s_odd)
                p = gl.convert_layout(unpack(packed), a_layout)
            else:
                p_s = relu_bf16(s)
                p = gl.convert_layout(p_s, a_layout)
            grad_v = warpgroup_mma(p, do, grad_v, is_async=True)
            if BITS:
                masks = positive_mask(packed)  # [64, BT/2]
                store_bits(Bits, masks, bh * blocks + j, first, S, BT)
            grad_p = warpgroup_mma_wait(1, deps=(grad_p,))
            if BITS:
                g_even, g_odd = split_columns(grad_p)
                ds = gl.convert_layout(unpack(pack(g_even, g_odd) & masks), a_layout)
            else:
                ds = gl.convert_layout(pass_where_positive(grad_p, p_s), a_layout)
            grad_k = warpgroup_mma(ds, q, grad_k, is_async=True)
            grad_v, p = warpgroup_mma_wait(1, deps=(grad_v, p))
            mbarrier.arrive(do_empty.index(i), count=1)
            grad_k, ds = warpgroup_mma_wait(0, deps=(grad_k, ds))
            mbarrier.arrive(q_empty.index(i), count=1)
            count += 1
        mbarrier.arrive(kv_empty.index(w), count=1)
        turn += 1  # noqa: SIM113 (Gluon has no enumerate)
        f = gl.load(Factor + b * f_b)
        keys = first + rows
        at_k = b.to(gl.int64) * gk_b + h * gk_h + keys[:, None].to(gl.int64) * gk_s + cols[None, :]
        gl.store(GradK + at_k, (grad_k * f).to(GradK.dtype.element_ty), mask=(keys < S)[:, None])
        at_v = b.to(gl.int64) * gv_b + h * gv_h + keys[:, None].to(gl.int64) * gv_s + cols[None, :]
        gl.store(GradV + at_v, (grad_v * f).to(GradV.dtype.element_ty), mask=(keys < S)[:, None])


@gluon.jit(do_not_specialize=["T", "f_b"])
def backward_dkdv(
    k_desc, v_desc, q_desc, do_desc, GradK, gk_b, gk_h, gk_s, GradV, gv_b, gv_h, gv_s, Factor, f_b, Bits,
    H, T, S, num_tiles, NWG: gl.constexpr, BT: gl.constexpr, STAGES: gl.constexpr, D: gl.constexpr,
    BITS: gl.constexpr, CREGS: gl.constexpr,
):  # fmt: skip
    """Compute dK and dV with two warpgroups.

    Args:
        k_desc, v_desc, q_desc, do_desc: descriptors of K, V, Q and dO.
        GradK, GradV: [B, H, S, D] with strides g_b, g_h, g_s, 1.
        Factor: f [B] with stride f_b.
        Bits: [B*H, T/BT, S/2, 8, 2] int16: words of `kernel_parts`, with keys as rows and queries as columns.
        num_tiles: B*H*ceil(S / (64*NWG)).
        CREGS: registers per thread of the warpgroups.
        BT, STAGES: queries of a block, and number of its buffers.
    """
    k_bufs = gl.allocate_shared_memory(k_desc.dtype, [NWG, 1, 1, 64, D], k_desc.layout)
    v_bufs = gl.allocate_shared_memory(v_desc.dtype, [NWG, 1, 1, 64, D], v_desc.layout)
    q_bufs = gl.allocate_shared_memory(q_desc.dtype, [STAGES, 1, 1, BT, D], q_desc.layout)
    do_bufs = gl.allocate_shared_memory(do_desc.dtype, [STAGES, 1, 1, BT, D], do_desc.layout)
    kv_full = gl.allocate_shared_memory(gl.int64, [NWG, 1], mbarrier.MBarrierLayout())
    kv_empty = gl.allocate_shared_memory(gl.int64, [NWG, 1], mbarrier.MBarrierLayout())
    q_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    q_empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    do_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    do_empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for w in gl.static_range(NWG):
        mbarrier.init(kv_full.index(w), count=1)
        mbarrier.init(kv_empty.index(w), count=1)
    for i in gl.static_range(STAGES):
        mbarrier.init(q_full.index(i), count=1)
        mbarrier.init(q_empty.index(i), count=NWG)
        mbarrier.init(do_full.index(i), count=1)
        mbarrier.init(do_empty.index(i), count=NWG)
    fence_async_shared()
    # Constants stay out of these tuples, because an assignment would turn them into run-time values.
    descriptors = (k_desc, v_desc, q_desc, do_desc)
    buffers = (k_bufs, v_bufs, q_bufs, do_bufs, kv_full, kv_empty, q_full, q_empty, do_full, do_empty)
    tensors = (GradK, gk_b, gk_h, gk_s, GradV, gv_b, gv_h, gv_s, Factor, f_b, Bits)
    sizes = (H, T, S, num_tiles)
    gl.warp_specialize(
        [
            (consumer, (0, NWG, BT, STAGES, D, BITS, buffers, tensors, sizes)),
            (consumer, (1, NWG, BT, STAGES, D, BITS, buffers, tensors, sizes)),
            (load_tiles, (NWG, BT, STAGES, D, descriptors, buffers, sizes)),
        ],
        [4, 1],
        [CREGS, 24],
    )
