"""Which blocks of 128 keys a tile of queries visits, and the other way around.

Gluon compiles these functions, and tests call them with Python's integers. They must agree: `dq` reads the bits that
`dkdv` has written. A sentence's real keys are from `first_real` to `after_real`; with a causal mask, query i sees keys
j ≤ S − T + i.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs

from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def locate(tile, tiles_per_head, CAUSAL: gl.constexpr):
    """Return the index of a tile's sentence and head, and the tile's position there.

    With a causal mask, some positions take longer. A program gets every 132nd tile, which is always at one position if
    the tiles per head divide 132, so each head begins one position later than the one before.
    """
    bh = tile // tiles_per_head
    position = tile % tiles_per_head
    if CAUSAL:
        position = (position + bh) % tiles_per_head
    return bh, position


@gluon.jit
def key_blocks(first_real, after_real, last_query, T, S, CAUSAL: gl.constexpr):
    """Return the first block that a tile of queries visits and the one after its last, at least one.

    last_query: the tile's last query, T or more if the tile is not full.
    """
    start = first_real // 128
    stop = after_real
    if CAUSAL:
        stop = min(stop, max(last_query + 1 + S - T, 0))
    return start, max((stop + 127) // 128, start + 1)


@gluon.jit
def query_blocks(first_real, after_real, key_block, T, S, CAUSAL: gl.constexpr):
    """Return the first block of queries that visits a block of keys and the one after the last, maybe none."""
    first_block = first_real // 128
    after_last_block = max((after_real + 127) // 128, first_block + 1)
    start = 0
    if CAUSAL:
        start = max(key_block * 128 + T - S, 0) // 128
    start = 0 if key_block == first_block else start
    blocks = (T + 127) // 128
    stop = blocks if (key_block >= first_block) & (key_block < after_last_block) else start
    return start, stop


@gluon.jit
def query_tile(tile, w: gl.constexpr, tiles_per_head, padding, sizes, CONFIG: gl.constexpr):
    """Return what warpgroup w computes of a tile of queries.

    Returns:
        Indices of the sentence and head, of the sentence, and of the head in it; the first query of the warpgroup; the
        first block of keys that the tile visits, and the one after its last.
    """
    H, T, S, _ = sizes
    ROWS: gl.constexpr = 64 * CONFIG.num_warpgroups
    bh, position = locate(tile, tiles_per_head, CONFIG.is_causal)
    b = bh // H
    h = bh % H
    first = position * ROWS + 64 * w
    first_real, after_real = load_bounds(padding, b, S, CONFIG.is_padded)
    start, stop = key_blocks(first_real, after_real, position * ROWS + ROWS - 1, T, S, CONFIG.is_causal)
    return (bh, b, h), first, (start, stop)


@gluon.jit
def key_tile(tile, w: gl.constexpr, tiles_per_head, padding, sizes, CONFIG: gl.constexpr):
    """Return what warpgroup w computes of a tile of 128 keys.

    Returns:
        Indices as in `query_tile`; the tile's block of keys; the first key of the warpgroup; the first block of 128
        queries that the tile visits, and the one after its last.
    """
    H, T, S, _ = sizes
    bh, block = locate(tile, tiles_per_head, CONFIG.is_causal)
    b = bh // H
    h = bh % H
    first = block * 128 + 64 * w
    first_real, after_real = load_bounds(padding, b, S, CONFIG.is_padded)
    start, stop = query_blocks(first_real, after_real, block, T, S, CONFIG.is_causal)
    return (bh, b, h), block, first, (start, stop)


@gluon.jit
def load_bounds(padding, b, S, PADDED: gl.constexpr):
    """Return the index of a sentence's first real key and the index after its last one."""
    first_real = 0
    after_real = S
    if PADDED:
        first_real = gl.load(padding.key_bounds + 2 * b)
        after_real = gl.load(padding.key_bounds + 2 * b + 1)
    return first_real, after_real
