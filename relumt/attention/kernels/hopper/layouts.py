"""Register layouts of a warpgroup, pairs of half-precision numbers in a register, and one bit per pair.

A warpgroup (4 warps) holds a tile of scores [64, N] in the layout of wgmma's accumulators: a thread holds, of each of
its two rows, two neighboring columns of every eight. Rounded to half precision these two share a 32-bit register:
[64, N] float32 -> [64, N/2] int32.

Bits of pairs are in 16-bit words. Word [row // 2, c, row % 2] has the bits of 16 columns 8k + c of a block of 128,
because a thread of the layout above holds these columns of its rows. Even k come first: bit k // 2 + 8 (k % 2), because
a warp whose rows are columns of the bits has two blocks of 8, which one shift brings to the ends of all bytes.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs

from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.constexpr_function
def mma_layout(n):
    """Return the layout of wgmma's accumulators [64, n]."""
    return gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, n, 16])


@gluon.constexpr_function
def operand_a(n):
    """Return the layout of a left operand in registers, for a product [64, n]."""
    return gl.DotOperandLayout(operand_index=0, parent=mma_layout(n), k_width=2)


@gluon.constexpr_function
def range_scale(dtype):
    """Return what numbers are multiplied by before they are rounded: products without factors can exceed float16."""
    return 0.0078125 if dtype == gl.float16 else 1.0


@gluon.jit
def zeros(n: gl.constexpr):
    """Return an empty accumulator [64, n]."""
    return gl.zeros([64, n], gl.float32, mma_layout(n))


@gluon.jit
def add(a, b):
    """Return a + b, for reductions."""
    return a + b


@gluon.jit
def bitwise_or(a, b):
    """Return a | b, for reductions."""
    return a | b


@gluon.jit
def split_columns(x):
    """Return the even and the odd columns of x: [M, N] -> twice [M, N/2]; no instruction in wgmma's layout."""
    return gl.split(x.reshape([x.shape[0], x.shape[1] // 2, 2]))


@gluon.jit
def pack(x, dtype: gl.constexpr):
    """Round: [M, N] float32 -> [M, N/2] int32. Numbers beyond float16's range become infinite."""
    even, odd = split_columns(x)
    if dtype == gl.float16:
        return gl.inline_asm_elementwise(
            "cvt.rn.f16x2.f32 $0, $2, $1;", "=r,r,r", [even * range_scale(dtype), odd * range_scale(dtype)],
            dtype=gl.int32, is_pure=True, pack=1,
        )  # fmt: skip
    else:
        return gl.inline_asm_elementwise(
            "cvt.rn.bf16x2.f32 $0, $2, $1;", "=r,r,r", [even, odd], dtype=gl.int32, is_pure=True, pack=1
        )


@gluon.jit
def pack_relu(x, dtype: gl.constexpr):
    """Apply ReLU and round in one instruction: [M, N] float32 -> [M, N/2] int32. NaN stays NaN."""
    even, odd = split_columns(x)
    if dtype == gl.float16:
        return gl.inline_asm_elementwise(
            "cvt.rn.relu.satfinite.f16x2.f32 $0, $2, $1;", "=r,r,r",
            [even * range_scale(dtype), odd * range_scale(dtype)], dtype=gl.int32, is_pure=True, pack=1,
        )  # fmt: skip
    else:
        return gl.inline_asm_elementwise(
            "cvt.rn.relu.bf16x2.f32 $0, $2, $1;", "=r,r,r", [even, odd], dtype=gl.int32, is_pure=True, pack=1
        )


@gluon.jit
def unpack(x, dtype: gl.constexpr):
    """Invert `pack`: [M, N/2] int32 -> [M, N] half precision."""
    if dtype == gl.float16:  # inline_asm_elementwise takes no constexpr in a tuple of types
        even, odd = gl.inline_asm_elementwise(
            "mov.b32 {$0, $1}, $2;", "=h,=h,r", [x], dtype=(gl.float16, gl.float16), is_pure=True, pack=1
        )
    else:
        even, odd = gl.inline_asm_elementwise(
            "mov.b32 {$0, $1}, $2;", "=h,=h,r", [x], dtype=(gl.bfloat16, gl.bfloat16), is_pure=True, pack=1
        )
    return gl.join(even, odd).reshape([x.shape[0], 2 * x.shape[1]])


@gluon.jit
def unpack_operand(x, dtype: gl.constexpr, D: gl.constexpr):
    """Invert `pack`, for the left operand of a product [64, D]."""
    return gl.convert_layout(unpack(x, dtype), operand_a(D))


@gluon.jit
def packed_zeros(n: gl.constexpr):
    """Return what `pack` makes of zeros [64, n]."""
    even, _ = split_columns(zeros(n))
    return even.to(gl.int32)


@gluon.jit
def split_pairs(x):
    """Return the two float32 in each int64."""
    return gl.inline_asm_elementwise(
        "mov.b64 {$0, $1}, $2;", "=r,=r,l", [x], dtype=(gl.float32, gl.float32), is_pure=True, pack=1
    )


@gluon.jit
def positive_masks(packed, dtype: gl.constexpr):
    """Return 0xFFFF in each half of a register where its number is positive, else 0."""
    asm: gl.constexpr = "f16x2" if dtype == gl.float16 else "bf16x2"
    return gl.inline_asm_elementwise(
        "{ .reg .b32 z; mov.b32 z, 0; set.gt.u32." + asm + " $0, $1, z; }",
        "=r,r", [packed], dtype=gl.int32, is_pure=True, pack=1,
    )  # fmt: skip


@gluon.jit
def permute_bytes(x, selector):
    """Return a register of bytes of x; byte 8 + i of the selector repeats the sign of byte i."""
    return gl.inline_asm_elementwise(
        "prmt.b32 $0, $1, $1, $2;", "=r,r,r", [x, selector], dtype=gl.int32, is_pure=True, pack=1
    )


@gluon.jit
def collect_bits(masks):
    """Return words of one bit per column, two words in one: [64, N/2] int32 -> [64, 4] int32.

    masks: each half 0xFFFF or 0: whether the bit of that column is set.
    """
    N: gl.constexpr = 2 * masks.shape[1]
    k = gl.arange(0, N // 2, layout=gl.SliceLayout(0, masks.type.layout)) // 4
    return gl.reduce((masks & (0x00010001 << (k // 2 + k % 2 * 8))[None, :]).reshape([64, N // 8, 4]), 1, bitwise_or)


@gluon.jit
def store_bits(Bits, masks, block, first, num_rows, previous=None):
    """Store one bit per pair of a tile.

    Args:
        Bits: [blocks, num_rows/2, 8, 2] int16.
        masks: see `collect_bits`; N is 128, or 64 for tiles that are the halves of a block in turns.
        block: which block of `Bits`.
        first: the tile's first row.
        num_rows: a multiple of 128; rows after them are not stored.
        previous: if N is 64, what this returned for the tile before, whose bits are stored again.
    """
    words = collect_bits(masks)
    if masks.shape[1] == 32:  # 4 of each 8 bits, those of the second half above those of the first
        words = previous >> 4 & 0x0F0F0F0F | words << 4
    layout: gl.constexpr = words.type.layout
    row = gl.arange(0, 64, layout=gl.SliceLayout(1, layout))
    lane = gl.arange(0, 4, layout=gl.SliceLayout(0, layout))
    Bits += (block.to(gl.int64) * num_rows + first) * 8  # in two steps, so that the offsets below are constants
    at = row[:, None] // 2 * 16 + lane[None, :] * 4 + row[:, None] % 2
    gl.store(Bits + at, words.to(gl.int16), mask=(first + row < num_rows)[:, None])
    gl.store(Bits + (at + 2), (words >> 16).to(gl.int16), mask=(first + row < num_rows)[:, None])
    return words


@gluon.jit
def load_words(Words, block, first_column, num_columns, N: gl.constexpr):
    """Load the words of a tile [64, N] whose rows are the columns of the bits: [8, N/2] int32, for `keep`.

    Args:
        Words: [blocks, num_columns/2, 8] int32, two words of `store_bits` in one.
        block: which block of `Words`: the one that has the tile's rows as bits.
        first_column: the tile's first column, a row for `store_bits`.
    """
    layout: gl.constexpr = gl.SliceLayout(0, gl.SliceLayout(1, packed_zeros(N).reshape([4, 2, 8, N // 2]).type.layout))
    row = gl.arange(0, 8, layout=gl.SliceLayout(1, layout))
    pair = gl.arange(0, N // 2, layout=gl.SliceLayout(0, layout))
    Words += (block.to(gl.int64) * num_columns + first_column) * 4  # in two steps, as in `store_bits`
    return gl.load(Words + (pair[None, :] * 8 + row[:, None]))


@gluon.jit
def keep(packed, word, first_row):
    """Set of each two numbers those to 0 whose bit is not set.

    Args:
        packed: [64, N/2] int32.
        word: what `load_words` returned for this tile.
        first_row: the tile's first row, a multiple of 64.
    """
    tile = packed.reshape([4, 2, 8, packed.shape[1]])  # [warp, k % 2, row % 8, N/2]
    layout: gl.constexpr = tile.type.layout
    warp = gl.arange(0, 4, layout=gl.SliceLayout(1, gl.SliceLayout(2, gl.SliceLayout(1, layout))))
    odd = gl.arange(0, 2, layout=gl.SliceLayout(0, gl.SliceLayout(2, gl.SliceLayout(3, layout))))
    signs = word[None] << (7 - first_row % 128 // 16 - warp)[:, None, None]
    selector = gl.where(odd == 0, 0xAA88, 0xBB99)[None, :, None, None]
    signs, selector = gl.broadcast(signs.expand_dims(1), selector)
    tile = tile & permute_bytes(signs, selector)
    return gl.convert_layout(tile.reshape([64, packed.shape[1]]), packed.type.layout, assert_trivial=True)


@gluon.jit
def load_row_words(Bits, block, first, num_rows, N: gl.constexpr):
    """Load the bits that `store_bits` stored for a tile [64, N]: [64, 4] int32, for `keep_columns`.

    Args:
        Bits, block, first, num_rows: see `store_bits`; rows after `num_rows` have no bits.
    """
    layout: gl.constexpr = gl.SliceLayout(1, packed_zeros(N).reshape([64, N // 8, 4]).type.layout)
    row = gl.arange(0, 64, layout=gl.SliceLayout(1, layout))
    lane = gl.arange(0, 4, layout=gl.SliceLayout(0, layout))
    Bits += (block.to(gl.int64) * num_rows + first) * 8  # in two steps, as in `store_bits`
    at = row[:, None] // 2 * 16 + lane[None, :] * 4 + row[:, None] % 2
    low = gl.load(Bits + at, mask=(first + row < num_rows)[:, None], other=0).to(gl.int32) & 0xFFFF
    high = gl.load(Bits + (at + 2), mask=(first + row < num_rows)[:, None], other=0).to(gl.int32)
    return low | (high << 16)


@gluon.jit
def keep_columns(packed, word):
    """Set of each two numbers those to 0 whose bit in a word of `load_row_words` is not set: [64, N/2] int32."""
    columns = packed.reshape([64, packed.shape[1] // 4, 4])  # [rows, blocks of 8 columns, pairs]
    block = gl.arange(0, packed.shape[1] // 4, layout=gl.SliceLayout(0, gl.SliceLayout(2, columns.type.layout)))
    signs = word[:, None, :] << (15 - block // 2 - block % 2 * 8)[None, :, None]  # the ends of both halves
    kept = columns & permute_bytes(signs, gl.full_like(signs, 0xBB99))
    return gl.convert_layout(kept.reshape([64, packed.shape[1]]), packed.type.layout, assert_trivial=True)


@gluon.jit
def add_pairs(a, b, dtype: gl.constexpr):
    """Add packed numbers."""
    asm: gl.constexpr = "f16x2" if dtype == gl.float16 else "bf16x2"
    return gl.inline_asm_elementwise(
        "add.rn." + asm + " $0, $1, $2;", "=r,r,r", [a, b], dtype=gl.int32, is_pure=True, pack=1
    )


@gluon.jit
def store_rows(output, x, bh, first, H, num_rows, D: gl.constexpr):
    """Store x [64, D] as rows from `first` on.

    Args:
        output: `Strided` tensor [B, H, num_rows, D], whose last stride is 1.
    """
    rows = first + gl.arange(0, 64, layout=gl.SliceLayout(1, mma_layout(D)))
    dims = gl.arange(0, D, layout=gl.SliceLayout(0, mma_layout(D)))
    start = (bh // H).to(gl.int64) * output.b + (bh % H).to(gl.int64) * output.h
    at = start + rows[:, None].to(gl.int64) * output.row + dims[None, :]
    gl.store(output.data + at, x.to(output.data.dtype.element_ty), mask=(rows < num_rows)[:, None])
