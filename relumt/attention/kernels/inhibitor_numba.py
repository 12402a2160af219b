"""The Inhibitor on a CPU, compiled by Numba: no T·S·D tensor in either direction, and no compiler to install.

Shapes: N = B·H sentences × heads, T queries, S keys, D head size, V value size. The loops are in
`inhibitor_numba_loops.py`. They are compiled once per dtype, whatever the shapes, masks and number of threads, and
Numba keeps the machine code on disk. The backward pass computes the distances again.

Threads share the heads, and the queries too where there are fewer heads than threads. They are ordinary Python threads
that the loops run without the interpreter's lock; Numba's own threads survive no fork. The output has the same bits
whatever the number of threads. Gradients differ by rounding where threads share the queries of a head.
"""

import itertools
import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from relumt.attention.kernels import inhibitor_naive, inhibitor_operator
from relumt.attention.mask import AttentionMask

MIN_TASK_SIZE = 1 << 20
"""Pairs × dimensions that are worth a thread of their own: about 0.1 ms."""
TASKS_PER_THREAD = 4
"""Several, because causal masks and padding make them unequal."""

Array = np.ndarray[Any, Any]


class Problem(NamedTuple):
    """What both passes read. A mask that is absent has no elements, so that its type is always the same.

    Attributes:
        q: [N, T, D].
        k: [N, S, D].
        v: [N, S, V].
        inv_gamma: 1/γ, of q's dtype.
        shift: α of each head, [N].
        key_mask: [B, S] bool, False for padding.
        attn_mask: [T, S] bool, True = may attend.
        dropped: [N, T, S] bool, pairs that dropout removes.
        key_bounds: the first key that is not padding, and the one after the last, [B, 2] int64.
        is_causal: whether query i sees keys j ≤ S − T + i only.
        num_heads: H.
    """

    q: Array
    k: Array
    v: Array
    inv_gamma: Any
    shift: Array
    key_mask: Array
    attn_mask: Array
    dropped: Array
    key_bounds: Array
    is_causal: bool
    num_heads: int


def attend(
    q: Tensor, k: Tensor, v: Tensor, gamma: float, shift: Tensor, mask: AttentionMask, dropped: Tensor | None
) -> Tensor:
    """Compute the same as `inhibitor_naive.attend`, with first derivatives only."""
    if 0 in (*q.shape, *k.shape, *v.shape):
        return inhibitor_naive.attend(q, k, v, gamma, shift, mask, dropped)
    return inhibitor_operator.attend(q, k, v, gamma, shift, mask, dropped, 0.0, False, "inhibitor_numba")


def new_output(q: Tensor, v: Tensor) -> Tensor:
    """Return an output of 0."""
    return v.new_zeros(*q.shape[:3], v.shape[3])


def new_gradients(q: Tensor, k: Tensor, v: Tensor, shift: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return gradients of 0."""
    grad_q, grad_k, grad_v, grad_shift = (x.new_zeros(x.shape) for x in (q, k, v, shift))
    return grad_q, grad_k, grad_v, grad_shift


def run_forward(
    q: Tensor, k: Tensor, v: Tensor, shift: Tensor, key_mask: Tensor | None, key_bounds: Tensor | None,
    attn_mask: Tensor | None, dropped: Tensor | None, seed: None, gamma: float, is_causal: bool, dropout_p: float,
    half: bool,
) -> Tensor:  # fmt: skip
    """Compute what `inhibitor_operator.attend` returns; `seed`, `dropout_p` and `half` are for other kernels."""
    from relumt.attention.kernels import inhibitor_numba_loops as loops  # here, because Numba is slow to import

    problem = _problem(q, k, v, shift, key_mask, key_bounds, attn_mask, dropped, gamma, is_causal)
    output = new_output(q, v)
    flat = output.flatten(0, 1).numpy()
    tasks = _tasks(problem, loops.TILE_T)
    _run(loops.forward, [(problem, flat, heads, queries) for _, heads, queries in tasks])
    return output


def run_backward(
    grad_output: Tensor, q: Tensor, k: Tensor, v: Tensor, shift: Tensor, key_mask: Tensor | None,
    key_bounds: Tensor | None, attn_mask: Tensor | None, dropped: Tensor | None, seed: None, gamma: float,
    is_causal: bool, dropout_p: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Return the gradients of q, k, v and the shift for that of the output."""
    from relumt.attention.kernels import inhibitor_numba_loops as loops  # here, as above

    problem = _problem(q, k, v, shift, key_mask, key_bounds, attn_mask, dropped, gamma, is_causal)
    tasks = list(_tasks(problem, loops.TILE_T))
    parts = 1 + max(part for part, _, _ in tasks)
    # Tasks that share heads have gradients of k, v and the shift of their own.
    grad_q = torch.zeros(problem.q.shape, dtype=q.dtype)
    grad_k, grad_v, grad_shift = (
        torch.zeros(parts, *x.shape, dtype=q.dtype) for x in (problem.k, problem.v, problem.shift)
    )
    arrays = [_array(grad_output.flatten(0, 1)), grad_q.numpy()]
    shared = [x.numpy() for x in (grad_k, grad_v, grad_shift)]
    calls = [(problem, *arrays, *(x[part] for x in shared), heads, queries) for part, heads, queries in tasks]
    _run(loops.backward, calls)
    grad_k, grad_v, grad_shift = (x[0] if parts == 1 else x.sum(0) for x in (grad_k, grad_v, grad_shift))
    grad_shift = grad_shift.view(q.shape[:2]).sum(0)
    return grad_q.view(q.shape), grad_k.view(k.shape), grad_v.view(v.shape), grad_shift.view(shift.shape)


def _problem(
    q: Tensor, k: Tensor, v: Tensor, shift: Tensor, key_mask: Tensor | None, key_bounds: Tensor | None,
    attn_mask: Tensor | None, dropped: Tensor | None, gamma: float, is_causal: bool,
) -> Problem:  # fmt: skip
    (B, H), none = q.shape[:2], np.empty((0, 0), bool)
    if key_bounds is None:
        key_bounds = torch.tensor([0, k.shape[2]], device="cpu").expand(B, 2)
    return Problem(
        q=_array(q.flatten(0, 1)),  # [B, H, …] -> [N, …]
        k=_array(k.flatten(0, 1)),
        v=_array(v.flatten(0, 1)),
        inv_gamma=_array(q.new_tensor(1 / gamma))[()],
        shift=_array(shift.view(1, -1).expand(B, H).flatten()),
        key_mask=none if key_mask is None else _array(key_mask),
        attn_mask=none if attn_mask is None else _array(attn_mask),
        dropped=none[None] if dropped is None else _array(dropped.flatten(0, 1)),
        key_bounds=_array(key_bounds.long()),
        is_causal=is_causal,
        num_heads=H,
    )


def _array(x: Tensor) -> Array:
    """Return x as a contiguous array, without copying where it is contiguous."""
    array: Array = x.detach().contiguous().numpy()
    return array


Task = tuple[int, tuple[int, int], tuple[int, int]]
"""Which copy of shared gradients it adds to, its heads, and its queries; first … last − 1."""


def _tasks(problem: Problem, tile_t: int) -> Iterator[Task]:
    """Divide a problem among torch's threads; every task begins at a tile of queries."""
    (N, T, D), (_, S, V) = problem.q.shape, problem.v.shape
    threads = max(1, min(torch.get_num_threads(), N * T * S * max(D, V) // MIN_TASK_SIZE))
    parts = 1 if threads <= N else math.ceil(threads / N)
    head_ranges = N if parts > 1 else min(N, threads * TASKS_PER_THREAD) if threads > 1 else 1
    for heads in _ranges(N, head_ranges, 1):
        for part, queries in enumerate(_ranges(T, parts, tile_t)):
            yield part, heads, queries


def _ranges(size: int, count: int, multiple: int) -> Iterator[tuple[int, int]]:
    """Divide 0 … size − 1 into at most `count` ranges that begin at multiples; they differ by at most one multiple."""
    tiles = math.ceil(size / multiple)
    bounds = [min(size, tiles * part // count * multiple) for part in range(count + 1)]
    return ((start, stop) for start, stop in itertools.pairwise(bounds) if start < stop)


def _run(function: Any, calls: list[tuple[Any, ...]]) -> None:
    """Call a compiled function with each of these arguments, on as many threads as torch has."""
    if len(calls) == 1:
        function(*calls[0])
        return
    with ThreadPoolExecutor(min(len(calls), torch.get_num_threads())) as threads:
        for done in [threads.submit(function, *arguments) for arguments in calls]:
            done.result()
