"""The loops of `inhibitor_numba.py`, compiled by Numba. Importing this module imports Numba, which takes a second.

Shapes: N = B·H sentences × heads, T queries, S keys, D head size, V value size. For query i, key j and component c

    r_ij = Σ_d |q_id − k_jd| / γ − α        z = r⁺        output_ic = Σ_j (v_jc − z_ij)⁺

Everything happens in tiles of at most TILE_T queries × TILE_S keys, which stay in a core's cache. Keys and values of a
tile are transposed (`_t`), so that the four innermost loops run over keys, which LLVM vectorizes; each serves four
queries at once, which saves loads and stores. Tiles are padded to whole multiples with hidden pairs. A hidden pair has
z = ∞ in the forward pass and NaN in the backward pass, where every comparison with it is false.

`forward` and `backward` stay in one file with what they call: Numba's cache on disk notices a change of the file that
defines a function, but not of others. No fast-math flag assumes that there is no NaN or infinity.
"""

import math
from collections.abc import Callable
from typing import Any

import numba
import numpy as np

TILE_T = 16
"""Queries per tile, a multiple of 4: each loop serves four."""
TILE_S = 256
"""Keys per tile, a multiple of LANES."""
LANES = 16
"""The number of keys of a tile is padded to a multiple of this."""

Array = np.ndarray[Any, Any]
OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": {"contract", "nsz", "reassoc"}}
_jit: Any = numba.njit(**OPTIONS)


def _cached_jit(function: Callable[..., None]) -> Any:
    """Compile a function, and keep the machine code on disk if its folder or the user's cache folder can be written."""
    try:
        return numba.njit(**OPTIONS, cache=True)(function)
    except RuntimeError:  # Numba found no folder
        return _jit(function)


@_cached_jit
def forward(problem: Any, output: Array, heads: tuple[int, int], queries: tuple[int, int]) -> None:
    """Add the output of queries first … last − 1 of heads first … last − 1 to `output` [N, T, V], which is 0.

    The first query must be a multiple of TILE_T; then the result does not depend on how the work is divided.
    """
    q, k, v = problem.q, problem.k, problem.v
    V, even_D = v.shape[2], (q.shape[2] + 1) // 2 * 2
    q_tile, k_t, v_t = _tile(TILE_T, even_D, q), _tile(even_D, TILE_S, q), _tile(V, TILE_S, q)
    r, z, sums = _tile(TILE_T, TILE_S, q), _tile(TILE_T, TILE_S, q), _tile(TILE_T, V, q)
    for n in range(heads[0], heads[1]):
        start, stop = problem.key_bounds[n // problem.num_heads]
        for j in range(start, stop, TILE_S):
            num_keys = min(TILE_S, stop - j)
            _load_transposed(k[n, j : j + num_keys], k_t)
            is_finite = _load_transposed(v[n, j : j + num_keys], v_t)
            for i in range(queries[0], queries[1], TILE_T):
                height, width = _tile_size(problem, i, j, num_keys)
                if width == 0:
                    continue
                _load(q[n, i : i + TILE_T], q_tile)
                _shifted_distances(q_tile[:height], k_t, problem.inv_gamma, problem.shift[n], r, z, width)
                _hide(problem, n, i, j, num_keys, z, width, math.inf)
                sums.fill(0)
                if is_finite:
                    _add_inhibited(z[:height], v_t, sums, width)
                else:
                    _add_visible_inhibited(z[:height], v_t, sums, width)
                _add(sums, output[n, i : i + TILE_T])


@_cached_jit
def backward(
    problem: Any, grad_output: Array, grad_q: Array, grad_k: Array, grad_v: Array, grad_shift: Array,
    heads: tuple[int, int], queries: tuple[int, int],
) -> None:  # fmt: skip
    """Add the gradients from some heads and queries, as in `forward`; grad_shift is [N], the others as q, k and v."""
    q, k, v = problem.q, problem.k, problem.v
    V, even_D = v.shape[2], (q.shape[2] + 1) // 2 * 2
    q_tile, sums, g = _tile(TILE_T, even_D, q), _tile(TILE_T, even_D, q), _tile(TILE_T, V, q)
    r, z, grad_z = _tile(TILE_T, TILE_S, q), _tile(TILE_T, TILE_S, q), _tile(TILE_T, TILE_S, q)
    k_t, grad_k_t = _tile(even_D, TILE_S, q), _tile(even_D, TILE_S, q)
    v_t, grad_v_t, shift_sums = _tile(V, TILE_S, q), _tile(V, TILE_S, q), _tile(1, TILE_S, q)[0]
    for n in range(heads[0], heads[1]):
        start, stop = problem.key_bounds[n // problem.num_heads]
        for j in range(start, stop, TILE_S):
            num_keys = min(TILE_S, stop - j)
            _load_transposed(k[n, j : j + num_keys], k_t)
            _load_transposed(v[n, j : j + num_keys], v_t)
            grad_k_t.fill(0)
            grad_v_t.fill(0)
            shift_sums.fill(0)
            for i in range(queries[0], queries[1], TILE_T):
                height, width = _tile_size(problem, i, j, num_keys)
                if width == 0:
                    continue
                _load(q[n, i : i + TILE_T], q_tile)
                _load(grad_output[n, i : i + TILE_T], g)
                _shifted_distances(q_tile[:height], k_t, problem.inv_gamma, problem.shift[n], r, z, width)
                _hide(problem, n, i, j, num_keys, z, width, math.nan)
                grad_z[:height, :width] = 0
                _add_value_gradients(z[:height], v_t, g, grad_z, grad_v_t, width)
                _distance_gradients(r[:height], grad_z, shift_sums, problem.inv_gamma, width)
                sums.fill(0)
                _add_query_and_key_gradients(grad_z[:height], q_tile, k_t, sums, grad_k_t, width)
                _add(sums, grad_q[n, i : i + TILE_T])
            _add(grad_k_t.T, grad_k[n, j : j + num_keys])
            _add(grad_v_t.T, grad_v[n, j : j + num_keys])
            grad_shift[n] += shift_sums.sum()


@_jit
def _tile(rows: int, columns: int, like: Array) -> Array:
    return np.zeros((rows, columns), like.dtype)


@_jit
def _tile_size(problem: Any, i: int, j: int, num_keys: int) -> tuple[int, int]:
    """Return how many queries, a multiple of 4, and keys, of LANES, the tile from query i and key j on needs."""
    T, S = problem.q.shape[1], problem.k.shape[1]
    height = min(TILE_T, T - i)
    if problem.is_causal:
        num_keys = min(num_keys, i + height + S - T - j)
    return (height + 3) // 4 * 4, (max(num_keys, 0) + LANES - 1) // LANES * LANES


@_jit
def _load(rows: Array, tile: Array) -> None:
    """Copy rows into a tile, padded with 0."""
    tile[rows.shape[0] :].fill(0)
    for row in range(rows.shape[0]):
        for column in range(rows.shape[1]):
            tile[row, column] = rows[row, column]


@_jit
def _load_transposed(rows: Array, tile_t: Array) -> bool:
    """Copy rows into the columns of a tile, padded with 0; return whether all elements are finite."""
    is_finite = True
    for column in range(rows.shape[1]):
        tile_t[column, rows.shape[0] :].fill(0)
        for row in range(rows.shape[0]):
            tile_t[column, row] = rows[row, column]
            is_finite &= math.isfinite(rows[row, column])
    return is_finite


@_jit
def _add(tile: Array, rows: Array) -> None:
    """Add a tile, without its padding, to rows."""
    for row in range(rows.shape[0]):
        for column in range(rows.shape[1]):
            rows[row, column] += tile[row, column]


@_jit
def _shifted_distances(q: Array, k_t: Array, inv_gamma: float, shift: float, r: Array, z: Array, width: int) -> None:
    """Set r_ij = Σ_d |q_id − k_jd| / γ − α, and z = r⁺, another array: LLVM does not vectorize the loop for one."""
    for i in range(0, q.shape[0], 4):
        r0, r1, r2, r3 = r[i], r[i + 1], r[i + 2], r[i + 3]
        r[i : i + 4, :width] = 0
        for d in range(0, q.shape[1], 2):
            a0, a1, a2, a3 = q[i, d], q[i + 1, d], q[i + 2, d], q[i + 3, d]
            b0, b1, b2, b3 = q[i, d + 1], q[i + 1, d + 1], q[i + 2, d + 1], q[i + 3, d + 1]
            a, b = k_t[d], k_t[d + 1]
            for j in range(width):
                r0[j] += abs(a0 - a[j]) + abs(b0 - b[j])
                r1[j] += abs(a1 - a[j]) + abs(b1 - b[j])
                r2[j] += abs(a2 - a[j]) + abs(b2 - b[j])
                r3[j] += abs(a3 - a[j]) + abs(b3 - b[j])
    for i in range(q.shape[0]):
        for j in range(width):
            r[i, j] = r[i, j] * inv_gamma - shift
            z[i, j] = _positive(r[i, j])


@_jit
def _hide(problem: Any, n: int, i: int, j: int, num_keys: int, z: Array, width: int, value: float) -> None:
    """Write `value` where the tile from query i and key j on is masked, dropped, or padded with keys."""
    T, S, sentence = problem.q.shape[1], problem.k.shape[1], n // problem.num_heads
    for row in range(min(TILE_T, T - i)):
        last_key = min(num_keys, i + row + S - T - j + 1) if problem.is_causal else num_keys
        z[row, min(max(last_key, 0), width) : width] = value
        for column in range(min(num_keys, width) if problem.key_mask.size else 0):
            if not problem.key_mask[sentence, j + column]:
                z[row, column] = value
        for column in range(min(num_keys, width) if problem.attn_mask.size else 0):
            if not problem.attn_mask[i + row, j + column]:
                z[row, column] = value
        for column in range(min(num_keys, width) if problem.dropped.size else 0):
            if problem.dropped[n, i + row, j + column]:
                z[row, column] = value


@_jit
def _positive(x: float) -> float:
    """Return x⁺; NaN stays NaN, which max() would not guarantee."""
    return type(x)(0) if x < 0 else x


@_jit
def _add_inhibited(z: Array, v_t: Array, sums: Array, width: int) -> None:
    """sums_ic += Σ_j (v_jc − z_ij)⁺."""
    for i in range(0, z.shape[0], 4):
        z0, z1, z2, z3 = z[i], z[i + 1], z[i + 2], z[i + 3]
        for c in range(v_t.shape[0]):
            v = v_t[c]
            sum0 = sum1 = sum2 = sum3 = v.dtype.type(0)
            for j in range(width):
                sum0 += _positive(v[j] - z0[j])
                sum1 += _positive(v[j] - z1[j])
                sum2 += _positive(v[j] - z2[j])
                sum3 += _positive(v[j] - z3[j])
            sums[i, c] += sum0
            sums[i + 1, c] += sum1
            sums[i + 2, c] += sum2
            sums[i + 3, c] += sum3


@_jit
def _add_visible_inhibited(z: Array, v_t: Array, sums: Array, width: int) -> None:
    """Do the same where values are infinite or NaN: v − ∞ would not be 0 for a hidden pair."""
    for i in range(z.shape[0]):
        for j in range(width):
            if z[i, j] != math.inf:
                for c in range(v_t.shape[0]):
                    sums[i, c] += _positive(v_t[c, j] - z[i, j])


@_jit
def _add_value_gradients(z: Array, v_t: Array, g: Array, grad_z: Array, grad_v_t: Array, width: int) -> None:
    """grad_v_jc += g_ic·H(v_jc − z_ij), and grad_z_ij += the sum of the same over c."""
    for i in range(0, z.shape[0], 4):
        z0, z1, z2, z3 = z[i], z[i + 1], z[i + 2], z[i + 3]
        sum0, sum1, sum2, sum3 = grad_z[i], grad_z[i + 1], grad_z[i + 2], grad_z[i + 3]
        for c in range(v_t.shape[0]):
            h0, h1, h2, h3 = g[i, c], g[i + 1, c], g[i + 2, c], g[i + 3, c]
            v, grad_v = v_t[c], grad_v_t[c]
            for j in range(width):
                g0 = _step(v[j], z0[j], h0)
                g1 = _step(v[j], z1[j], h1)
                g2 = _step(v[j], z2[j], h2)
                g3 = _step(v[j], z3[j], h3)
                grad_v[j] += (g0 + g1) + (g2 + g3)
                sum0[j] += g0
                sum1[j] += g1
                sum2[j] += g2
                sum3[j] += g3


@_jit
def _step(v: float, z: float, g: float) -> float:
    """Return g·H(v − z) with H(0) = ½; 0 if v or z is NaN."""
    half, zero = g * type(g)(0.5), type(g)(0)  # g / 2 would be float64
    return (half if v > z else zero) + (half if v >= z else zero)


@_jit
def _distance_gradients(r: Array, grad_z: Array, shift_sums: Array, inv_gamma: float, width: int) -> None:
    """Turn Σ_c g·H(v − z), which is −grad_z, into the gradient of a distance, and add up the gradient of α."""
    for i in range(r.shape[0]):
        for j in range(width):
            grad_shift = _step(r[i, j], type(inv_gamma)(0), grad_z[i, j])
            shift_sums[j] += grad_shift
            grad_z[i, j] = -grad_shift * inv_gamma


@_jit
def _add_query_and_key_gradients(s: Array, q: Array, k_t: Array, sums: Array, grad_k_t: Array, width: int) -> None:
    """sums_id += Σ_j s_ij·sign(q_id − k_jd), and grad_k_jd −= the sum of the same over i."""
    for i in range(0, s.shape[0], 4):
        s0, s1, s2, s3 = s[i], s[i + 1], s[i + 2], s[i + 3]
        for d in range(q.shape[1]):
            q0, q1, q2, q3 = q[i, d], q[i + 1, d], q[i + 2, d], q[i + 3, d]
            k, grad_k = k_t[d], grad_k_t[d]
            sum0 = sum1 = sum2 = sum3 = k.dtype.type(0)
            for j in range(width):
                g0 = _signed(q0, k[j], s0[j])
                g1 = _signed(q1, k[j], s1[j])
                g2 = _signed(q2, k[j], s2[j])
                g3 = _signed(q3, k[j], s3[j])
                grad_k[j] -= (g0 + g1) + (g2 + g3)
                sum0 += g0
                sum1 += g1
                sum2 += g2
                sum3 += g3
            sums[i, d] += sum0
            sums[i + 1, d] += sum1
            sums[i + 2, d] += sum2
            sums[i + 3, d] += sum3


@_jit
def _signed(q: float, k: float, s: float) -> float:
    """Return s·sign(q − k); 0 if one is NaN."""
    zero = type(s)(0)
    return (s if q > k else zero) - (s if q < k else zero)
