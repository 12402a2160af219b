"""The Inhibitor's forward kernel in half precision, two numbers per instruction.

Equations and shapes: `inhibitor_triton_common`. q, k and v are float16, and so is the work per pair and dimension:
differences, each eighth of a distance's sum, z, and the sum over RUN keys. Scaling and shifting of distances and longer
sums are in float32. Two neighboring dimensions are one int32, for NVIDIA's instructions on pairs of float16 numbers.
If a program holds 32 queries, a thread holds one, so that no distance is exchanged between threads.

The backward pass stays in float32: for values within 10⁻³ of their z, float16 decides differently which are larger, and
that alone changes a gradient by 2%.
"""

# Triton compiles the kernels; their arguments are pointers and tl.tensor, which mypy cannot check.
# mypy: allow-untyped-defs, allow-incomplete-defs

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from relumt.attention.kernels.inhibitor_triton_common import hide_pairs, key_range
from relumt.attention.kernels.triton_common import load_seed, zeros
from relumt.attention.precision import cast_saturating

RUN = tl.constexpr(8)
"""Keys whose contributions are summed in float16."""


def pack_inputs(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Cast [B, H, T, D] to float16 and return pairs of numbers as int32, [B, H, T, ⌈D/2⌉].

    Numbers are clamped to float16's range, and v to a range in which RUN values can be summed. k and v are padded to a
    multiple of RUN keys with zeros, which contribute nothing because no z is below 0.
    """
    max_v, more_keys = torch.finfo(torch.float16).max / RUN.value, (0, 0, 0, -k.shape[2] % RUN.value)
    return _pack(q), _pack(F.pad(k, more_keys)), _pack(F.pad(v.clamp(-max_v, max_v), more_keys))


def _pack(x: Tensor) -> Tensor:
    return F.pad(cast_saturating(x, torch.float16), (0, x.shape[-1] % 2)).contiguous().view(torch.int32)


@triton.jit
def _abs_difference(a, b):
    return tl.inline_asm_elementwise(
        "{ .reg .b32 t; sub.rn.f16x2 t, $1, $2; abs.f16x2 $0, t; }",
        "=r,r,r", [a, b], dtype=tl.int32, is_pure=True, pack=1,
    )  # fmt: skip


@triton.jit
def _add(a, b):
    return tl.inline_asm_elementwise(
        "add.rn.f16x2 $0, $1, $2;", "=r,r,r", [a, b], dtype=tl.int32, is_pure=True, pack=1
    )  # fmt: skip


@triton.jit
def _positive_difference(a, b):
    """Return (a − b)⁺; NaN stays NaN."""
    return tl.inline_asm_elementwise(
        "{ .reg .b32 c; mov.b32 c, 0xBC00BC00; fma.rn.relu.f16x2 $0, $2, c, $1; }",  # b · −1 + a
        "=r,r,r", [a, b], dtype=tl.int32, is_pure=True, pack=1,
    )  # fmt: skip


@triton.jit
def _round_positive_part(x):
    """Round x⁺ to float16, twice; NaN stays NaN."""
    return tl.inline_asm_elementwise(
        "cvt.rn.relu.f16x2.f32 $0, $1, $1;", "=r,r", [x], dtype=tl.int32, is_pure=True, pack=1
    )


@triton.jit
def _to_floats(x):
    return tl.inline_asm_elementwise(
        "{ .reg .b16 l, h; mov.b32 {l, h}, $2; cvt.f32.f16 $0, l; cvt.f32.f16 $1, h; }",
        "=r,=r,r", [x], dtype=(tl.float32, tl.float32), is_pure=True, pack=1,
    )  # fmt: skip


@triton.jit
def _load_quarters(X, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    """Load a vector of SIZE numbers as four columns of BLOCK / 4; 0 beyond SIZE.

    Each thread loads a whole column of fewer than 32 numbers; longer ones would be exchanged between threads.
    """
    i = tl.arange(0, BLOCK // 4)
    j, k, m = BLOCK // 4 + i, BLOCK // 2 + i, 3 * BLOCK // 4 + i
    a, b = tl.load(X + i, i < SIZE, 0)[:, None], tl.load(X + j, j < SIZE, 0)[:, None]
    c, d = tl.load(X + k, k < SIZE, 0)[:, None], tl.load(X + m, m < SIZE, 0)[:, None]
    return a, b, c, d


@triton.jit
def _load_block(Q, i: tl.constexpr, stride, queries, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    """Load the i-th quarter of the dimensions of a block of queries."""
    dims = tl.arange(0, BLOCK // 4) + i * (BLOCK // 4)
    return tl.load(Q + dims[:, None] * stride + queries[None], dims[:, None] < SIZE, 0)


@triton.jit
def _sum_dims(q, k):
    """Sum |q − k| over a quarter of the dimensions, in float16 over the even and the odd ones."""
    even, odd = _to_floats(tl.reduce(_abs_difference(q, tl.broadcast_to(k, q.shape)), 0, _add))
    return even + odd


@triton.jit
def _distances(q, k):
    return (_sum_dims(q[0], k[0]) + _sum_dims(q[1], k[1])) + (_sum_dims(q[2], k[2]) + _sum_dims(q[3], k[3]))


@triton.jit
def _contributions(r, v):
    z = _round_positive_part(r)[None]
    a, b = _positive_difference(v[0], z), _positive_difference(v[1], z)
    c, d = _positive_difference(v[2], z), _positive_difference(v[3], z)
    return a, b, c, d


@triton.jit
def _add_quarters(x, y):
    return _add(x[0], y[0]), _add(x[1], y[1]), _add(x[2], y[2]), _add(x[3], y[3])


@triton.jit
def _add_floats(even, odd, x):
    more_even, more_odd = _to_floats(x)
    return even + more_even, odd + more_odd


@triton.constexpr_function
def pairs_of(size):
    """Return how many pairs hold `size` numbers."""
    return (size + 1) // 2


@triton.constexpr_function
def block_of_pairs(block):
    """Return how many pairs hold a block; `_load_quarters` needs four."""
    return max(4, block // 2)


@triton.jit
def _add_run(out, first, q, K, V, scaling, queries, sentence, padding, dropout, CONFIG: tl.constexpr):
    """Add the contributions of RUN keys to an output in float32."""
    inv_gamma, shift = scaling
    D: tl.constexpr = pairs_of(CONFIG.D)
    V_SIZE: tl.constexpr = pairs_of(CONFIG.V)
    K += first * D
    V += first * V_SIZE
    for i in tl.static_range(RUN):
        r = _distances(q, _load_quarters(K + i * D, D, block_of_pairs(CONFIG.block_d))) * inv_gamma - shift
        r = hide_pairs(r, queries, first + i, sentence, padding, dropout, CONFIG)
        x = _contributions(r, _load_quarters(V + i * V_SIZE, V_SIZE, block_of_pairs(CONFIG.block_v)))
        if i == 0:  # noqa: SIM108 (`run` is not defined yet)
            run = x
        else:
            run = _add_quarters(run, x)
    a, b = _add_floats(out[0], out[1], run[0])
    c, d = _add_floats(out[2], out[3], run[1])
    e, f = _add_floats(out[4], out[5], run[2])
    g, h = _add_floats(out[6], out[7], run[3])
    return a, b, c, d, e, f, g, h


@triton.jit
def _store_block(Out, i: tl.constexpr, even, odd, stride, queries, V_SIZE: tl.constexpr):
    """Store the i-th quarter of the dimensions."""
    dims = 2 * (tl.arange(0, even.shape[0]) + i * even.shape[0])[:, None]
    tl.store(Out + dims * stride + queries[None], even, dims < V_SIZE)
    tl.store(Out + (dims + 1) * stride + queries[None], odd, dims + 1 < V_SIZE)


@triton.jit(do_not_specialize=["T", "S", "split_size"])
def forward(Q, K, V, scaling, padding, dropout, H, T, S, split_size, stride, Out, CONFIG: tl.constexpr):
    """Compute the output of a block of queries of one head from a split of the keys, a multiple of RUN."""
    bh = tl.program_id(0)
    b = bh // H
    # Triton must not load neighboring queries by one instruction: a thread would have several, and not all dimensions.
    # That their first one is a multiple of the block is therefore withheld.
    queries = tl.multiple_of(tl.program_id(1) * CONFIG.block + tl.arange(0, CONFIG.block), 1)
    sentence, seeded = (b, bh, T, S), (dropout.p, load_seed(dropout.seed))
    loaded_scaling = (scaling.inv_gamma, tl.load(scaling.shift + bh % H))
    PAIRS_D: tl.constexpr = pairs_of(CONFIG.D)
    HALF_D: tl.constexpr = block_of_pairs(CONFIG.block_d)
    Q += bh.to(tl.int64) * PAIRS_D * stride
    K += bh.to(tl.int64) * tl.cdiv(S, RUN) * RUN * PAIRS_D
    V += bh.to(tl.int64) * tl.cdiv(S, RUN) * RUN * pairs_of(CONFIG.V)
    Out += (tl.program_id(2).to(tl.int64) * tl.num_programs(0) + bh) * CONFIG.V * stride
    q = (
        _load_block(Q, 0, stride, queries, PAIRS_D, HALF_D), _load_block(Q, 1, stride, queries, PAIRS_D, HALF_D),
        _load_block(Q, 2, stride, queries, PAIRS_D, HALF_D), _load_block(Q, 3, stride, queries, PAIRS_D, HALF_D),
    )  # fmt: skip
    nothing = zeros(block_of_pairs(CONFIG.block_v) // 4, CONFIG.block)
    out = (nothing, nothing, nothing, nothing, nothing, nothing, nothing, nothing)
    start, stop = key_range(padding, b, split_size, T, S, CONFIG)
    # A run may begin before `start` and end after `stop`: masks hide such keys, or they are zeros.
    for first in range(start // RUN * RUN, stop, RUN):
        out = _add_run(out, first, q, K, V, loaded_scaling, queries, sentence, padding, seeded, CONFIG)
    _store_block(Out, 0, out[0], out[1], stride, queries, CONFIG.V)
    _store_block(Out, 1, out[2], out[3], stride, queries, CONFIG.V)
    _store_block(Out, 2, out[4], out[5], stride, queries, CONFIG.V)
    _store_block(Out, 3, out[6], out[7], stride, queries, CONFIG.V)
