"""The keys and values that attention caches during incremental decoding.

Shapes: B hypotheses, H heads, N tokens decoded so far, T new tokens, D head size.

fairseq's cache is a dictionary with tensors `prev_key` and `prev_value` [B, H, N, D]. Every step copies them twice, to
append a token and to follow the beam. Here both are views of one buffer [capacity, 2, B, H, D], which has room for more
steps, so only the beam needs a copy. It goes to a second buffer, which all layers share: each leaves its old one there
for the next. With the steps first, the copy and the new token are whole rows of H·D.
"""

import math
from typing import Any

import torch
from torch import Tensor

from relumt.attention.precision import at_least_float32

Cache = dict[str, Any]
IncrementalState = dict[str, dict[str, Tensor | None]]

CAPACITY_STEP = 32
"""Decoding steps by which a full buffer grows."""

SPARE = "relumt.spare"
"""Key of the incremental state under which the layers share a buffer."""


def in_cached_dtype(x: Tensor) -> Tensor:
    """Return keys or values in the type in which attention computes on a CPU, at least float32, to cast them once.

    On a GPU they stay in half precision: kernels read it, and memory is scarce.
    """
    return at_least_float32(x) if x.is_cpu else x


def append_keys_values(cache: Cache, kv: Tensor) -> tuple[Tensor, Tensor]:
    """Append keys and values [2, B, H, T, D] to the cache; return all keys and all values [B, H, N + T, D]."""
    filled = cache["prev_key"].shape[2] if "prev_key" in cache else 0
    total = filled + kv.shape[3]
    if torch.is_grad_enabled():  # autograd cannot differentiate through a buffer that is overwritten later
        cache.pop("buffer", None)
        if filled:
            kv = torch.cat([torch.stack((cache["prev_key"], cache["prev_value"])), kv], dim=3)
    else:
        buffer = ensure_capacity(cache, filled, total, kv)
        buffer[filled:total] = kv.permute(3, 0, 1, 2, 4)  # [2, B, H, T, D] -> [T, 2, B, H, D]
        kv = keys_values(buffer, total)
        cache["buffer"] = buffer
    cache["prev_key"], cache["prev_value"] = kv.unbind()
    return cache["prev_key"], cache["prev_value"]


def keys_values(buffer: Tensor, filled: int) -> Tensor:
    """Return the first `filled` steps of a buffer as keys and values [2, B, H, filled, D]."""
    return buffer[:filled].permute(1, 2, 3, 0, 4)  # [N, 2, B, H, D] -> [2, B, H, N, D]


def ensure_capacity(cache: Cache, filled: int, total: int, like: Tensor) -> Tensor:
    """Return the cache's buffer, or a larger copy of its `filled` steps if it has no room for `total` steps."""
    buffer: Tensor | None = cache.get("buffer")
    if buffer is not None and len(buffer) >= total:
        return buffer
    _, B, H, _, D = like.shape
    larger = like.new_empty(-(-total // CAPACITY_STEP) * CAPACITY_STEP, 2, B, H, D)
    if filled:
        keys_values(larger, filled).copy_(torch.stack((cache["prev_key"], cache["prev_value"])))
    return larger


def reorder_hypotheses(cache: Cache, new_order: Tensor, spare: Tensor | None = None) -> Tensor | None:
    """Let hypothesis i continue hypothesis new_order[i] in a self-attention cache.

    Args:
        cache: keys and values.
        new_order: [new B].
        spare: a buffer that no cache uses and that may be overwritten.

    Returns:
        A buffer that no cache uses any more.
    """
    if "buffer" in cache:
        filled = cache["prev_key"].shape[2]
        old, cache["buffer"] = cache["buffer"], reordered_buffer(cache["buffer"], filled, new_order, spare)
        cache["prev_key"], cache["prev_value"] = keys_values(cache["buffer"], filled).unbind()
        spare = spare if cache["buffer"] is old else old
    else:
        select_hypotheses(cache, ("prev_key", "prev_value"), new_order)
    select_hypotheses(cache, ("prev_key_padding_mask",), new_order)
    return spare


def reordered_buffer(buffer: Tensor, filled: int, new_order: Tensor, spare: Tensor | None) -> Tensor:
    """Return a buffer [capacity, 2, new B, H, D] with the hypotheses in the new order, in the memory of `spare`."""
    capacity, _, B, H, D = buffer.shape
    # On a GPU, the CPU would have to wait for this comparison.
    if not buffer.is_cuda and len(new_order) == B and torch.equal(new_order, torch.arange(B)):
        return buffer
    shape = (capacity, 2, len(new_order), H, D)
    size = math.prod(shape)
    if spare is None or spare.numel() < size or spare.dtype != buffer.dtype or spare.device != buffer.device:
        spare = buffer.new_empty(size)
    reordered = spare.view(-1)[:size].view(shape)
    first_rows = torch.arange(0, 2 * filled * B, B, device=new_order.device)
    rows = (first_rows.unsqueeze(1) + new_order).flatten()  # [2N, 1] + [new B] -> [2N·new B]
    # [N, 2, B, H, D] -> [2N·B, H·D]
    torch.index_select(buffer[:filled].view(-1, H * D), 0, rows, out=reordered[:filled].view(-1, H * D))
    return reordered


def reorder_sources(cache: Cache, new_order: Tensor) -> None:
    """Let hypothesis i attend to the source of hypothesis new_order[i] in a cross-attention cache.

    A beam search moves hypotheses only within their sentence, so nothing changes until a sentence leaves the batch.

    cache["beam"] consecutive hypotheses share one entry of the cache; without `cache["beam"]`, each has its own. If
    hypotheses share an entry only because several sentences are equal, these sentences may leave the batch at
    different times; then each hypothesis gets its own entry.
    """
    beam = cache.get("beam", 1)
    if "prev_key" not in cache or len(cache["prev_key"]) * beam == len(new_order):
        return
    entries = new_order // beam
    by_sentence = entries.view(-1, beam) if len(entries) % beam == 0 else None
    if by_sentence is not None and bool((by_sentence == by_sentence[:, :1]).all()):
        entries = by_sentence[:, 0]
    else:
        cache.pop("beam")
    cache.pop("mask", None)
    select_hypotheses(cache, ("prev_key", "prev_value", "prev_key_padding_mask"), entries)


def select_hypotheses(cache: Cache, names: tuple[str, ...], indices: Tensor) -> None:
    """Select entries along the batch dimension of the named tensors, if the cache has them."""
    for name in names:
        if cache.get(name) is not None:
            cache[name] = cache[name].index_select(0, indices)
