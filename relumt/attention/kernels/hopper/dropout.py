"""Dropout decisions on the GPU: Philox 4x32 with 7 rounds, 16 decisions of 7 bits per call.

A pair is kept if u ≥ 128 p, where u is one of the 16 numbers of 7 bits of a call. The counter of a call is (block of 16
keys and lane, row of queries, sentence and head, 0), so that every pair has one decision. Seven rounds are the fewest
that pass BigCrush (Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3, SC 2011).
"""

# mypy: allow-untyped-defs, allow-incomplete-defs

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from relumt.attention.kernels.hopper.layouts import permute_bytes

ROUNDS = gl.constexpr(7)


@gluon.jit
def multiply_wide(a, b):
    """Return the low and the high half of a 64-bit product."""
    return gl.inline_asm_elementwise(
        "{ .reg .b64 t; mul.wide.u32 t, $2, $3; mov.b64 {$0, $1}, t; }",
        "=r,=r,r,r", [a, b], dtype=(gl.int32, gl.int32), is_pure=True, pack=1,
    )  # fmt: skip


@gluon.jit
def philox(c0, c1, c2, c3, k0, k1):
    """Return four random words for a counter and a key of int32."""
    for _ in gl.static_range(ROUNDS):
        lo0, hi0 = multiply_wide(c0, gl.full_like(c0, -766435501))  # 0xD2511F53
        lo1, hi1 = multiply_wide(c2, gl.full_like(c2, -845247145))  # 0xCD9E8D57
        c0, c1, c2, c3 = hi1 ^ c1 ^ k0, lo1, hi0 ^ c3 ^ k1, lo0
        k0 += -1640531527
        k1 += -1150833019
    return c0, c1, c2, c3


@gluon.jit
def kept_masks(packed, row16, block, bh, seed0, seed1, threshold, BN: gl.constexpr):
    """Return 0xFFFF in each half where its pair is kept, else 0: [64, BN/2] int32.

    Args:
        packed: a tensor [64, BN/2] with the layout of the result.
        row16: index of these 64 queries, divided by 16.
        block: index of the block of BN keys.
        bh: index of the sentence and head.
        seed0, seed1: the halves of the seed.
        threshold: 128 (1 - p) in each byte, so that adding u sets bit 7 if the pair is kept.
    """
    L6: gl.constexpr = packed.reshape([4, 2, 8, BN // 32, 4, 4]).type.layout
    L4: gl.constexpr = gl.SliceLayout(1, gl.SliceLayout(4, L6))
    warp = gl.arange(0, 4, layout=gl.SliceLayout(1, gl.SliceLayout(2, gl.SliceLayout(3, L4))))[:, None, None, None]
    g = gl.arange(0, 8, layout=gl.SliceLayout(0, gl.SliceLayout(2, gl.SliceLayout(3, L4))))[None, :, None, None]
    q = gl.arange(0, BN // 32, layout=gl.SliceLayout(0, gl.SliceLayout(1, gl.SliceLayout(3, L4))))[None, None, :, None]
    c = gl.arange(0, 4, layout=gl.SliceLayout(0, gl.SliceLayout(1, gl.SliceLayout(2, L4))))[None, None, None, :]
    shape: gl.constexpr = [4, 8, BN // 32, 4]
    zero = gl.zeros(shape, gl.int32, L4)
    rows = (row16 + warp) * 8 + g + zero
    w0, w1, w2, w3 = philox((block * (BN // 32) + q) * 4 + c + zero, rows, zero + bh, zero, seed0, seed1)
    words = gl.join(gl.join(w0, w2), gl.join(w1, w3)).reshape([4, 8, BN // 32, 4, 4]).permute([0, 1, 2, 4, 3])
    words = gl.convert_layout((words & 0x7F7F7F7F) + threshold, gl.SliceLayout(1, L6), assert_trivial=True)
    u_layout: gl.constexpr = gl.SliceLayout(2, gl.SliceLayout(3, gl.SliceLayout(4, gl.SliceLayout(5, L6))))
    u = gl.arange(0, 2, layout=gl.SliceLayout(0, u_layout))
    selector = gl.where(u == 0, 0x9988, 0xBBAA)[None, :, None, None, None, None]
    words, selector = gl.broadcast(words.expand_dims(1), selector)
    return gl.convert_layout(
        permute_bytes(words, selector).reshape([64, BN // 2]), packed.type.layout, assert_trivial=True
    )
