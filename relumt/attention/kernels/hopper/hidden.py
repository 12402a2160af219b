"""Scores and gradients of keys that a causal mask or padding hides.

Padding and keys after the last are zeros in memory, so their scores are 0. Without a shift these have no weight. With
one they have; values of 0 keep it out of the output, and keys of 0 out of the gradient of q, but it must be kept out of
sums of weights, and of gradients of k and v.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from relumt.attention.kernels.hopper.layouts import mma_layout


@gluon.jit
def hide_columns(x, word):
    """Set scores [64, N/8, 8] to 0 unless bit k of a word [64 or 1, 8] is set, and return them as [64, N]."""
    BLOCKS: gl.constexpr = x.shape[1]
    bit = 1 << gl.arange(0, BLOCKS, layout=gl.SliceLayout(0, gl.SliceLayout(2, x.type.layout)))
    x = gl.where((word[:, None, :] & bit[None, :, None]) != 0, x, 0.0)
    return gl.convert_layout(x.reshape([64, 8 * BLOCKS]), mma_layout(8 * BLOCKS), assert_trivial=True)


@gluon.jit
def hide_future(s, first_row, first_column, T, S, ROWS_ARE_KEYS: gl.constexpr):
    """Set scores [64, N] that a causal mask hides to 0.

    Of the columns 8k + c, a row sees those from some k on, or those before. So one word for a row and c has all bits.
    """
    BLOCKS: gl.constexpr = s.shape[1] // 8
    last_key, first_query = first_column + 8 * BLOCKS - 1, first_row
    if ROWS_ARE_KEYS:
        last_key, first_query = first_row + 63, first_column
    if last_key > first_query + S - T:
        x = s.reshape([64, BLOCKS, 8])
        layout: gl.constexpr = gl.SliceLayout(1, x.type.layout)
        rows = first_row + gl.arange(0, 64, layout=gl.SliceLayout(1, layout))[:, None]
        c = gl.arange(0, 8, layout=gl.SliceLayout(0, layout))[None, :]
        if ROWS_ARE_KEYS:
            first_visible = rows - (S - T) - first_column - c  # [64, 8], like the next one
            word = -1 << gl.minimum(gl.maximum((first_visible + 7) >> 3, 0), BLOCKS)
        else:
            last_visible = rows + (S - T) - first_column - c
            word = (1 << gl.minimum(gl.maximum((last_visible >> 3) + 1, 0), BLOCKS)) - 1
        s = hide_columns(x, word)
    return s


@gluon.jit
def hide_padding(s, padding, at, first_column, S, PADDED: gl.constexpr):
    """Set scores [64, 128] of padding, and of keys after the last, to 0.

    Args:
        s: scores with queries as rows.
        padding: `Padding`, if PADDED.
        at: index of the block in them.
        first_column: the block's first key.
    """
    BLOCKS: gl.constexpr = s.shape[1] // 8
    has_hidden = first_column + 8 * BLOCKS > S
    if PADDED:
        has_hidden = has_hidden | (gl.load(padding.mixed + at) != 0)
    if has_hidden:
        x = s.reshape([64, BLOCKS, 8])
        c = gl.arange(0, 8, layout=gl.SliceLayout(0, gl.SliceLayout(1, x.type.layout)))
        if PADDED:
            word = gl.load(padding.visible + (at * 8 + c))
        else:
            word = (1 << gl.minimum(gl.maximum((S - first_column - c + 7) >> 3, 0), BLOCKS)) - 1
        s = hide_columns(x, word[None, :])
    return s


@gluon.jit
def zero_hidden_rows(x, Visible, at, first: gl.constexpr, D: gl.constexpr):
    """Set rows of x [64, D] to 0 whose keys are hidden; the keys are those of a block from `first` on."""
    rows = first + gl.arange(0, 64, layout=gl.SliceLayout(1, mma_layout(D)))
    is_visible = (gl.load(Visible + (at * 8 + rows % 8)) >> rows // 8 & 1) != 0
    return gl.where(is_visible[:, None], x, 0.0)
