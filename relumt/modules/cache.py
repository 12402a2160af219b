"""The keys and values that attention caches during incremental decoding.

Shapes: B hypotheses, H heads, N tokens decoded so far, T new tokens, D head size.

fairseq's cache is a dictionary with tensors `prev_key` and `prev_value` [B, H, N, D]. Every step copies them twice, to
append a token and to follow the beam. Here both are views of one buffer [2, B, H, capacity, D], which has room for more
steps, and only the hypotheses that the beam search moves are copied.
"""

from typing import Any

import torch
from torch import Tensor

Cache = dict[str, Any]
IncrementalState = dict[str, dict[str, Tensor | None]]

CAPACITY_STEP = 32
"""Decoding steps by which a full buffer grows."""

IN_PLACE_NUMEL = 1 << 19
"""Buffer size from which copying the whole buffer costs more than finding the hypotheses that move."""


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
        buffer.narrow(3, filled, total - filled).copy_(kv)
        kv = buffer.narrow(3, 0, total)
        cache["buffer"] = buffer
    cache["prev_key"], cache["prev_value"] = kv.unbind()
    return cache["prev_key"], cache["prev_value"]


def ensure_capacity(cache: Cache, filled: int, total: int, like: Tensor) -> Tensor:
    """Return the cache's buffer, or a larger copy of its `filled` steps if it has no room for `total` steps."""
    buffer: Tensor | None = cache.get("buffer")
    if buffer is not None and buffer.shape[3] >= total:
        return buffer
    _, B, H, _, D = like.shape
    larger = like.new_empty(2, B, H, -(-total // CAPACITY_STEP) * CAPACITY_STEP, D)
    if filled:
        larger[0, :, :, :filled] = cache["prev_key"]
        larger[1, :, :, :filled] = cache["prev_value"]
    return larger


def reorder_hypotheses(cache: Cache, new_order: Tensor) -> None:
    """Let hypothesis i continue hypothesis new_order[i] in a self-attention cache."""
    if "buffer" in cache:
        filled = cache["prev_key"].shape[2]
        cache["buffer"] = reorder_buffer(cache["buffer"], filled, new_order)
        cache["prev_key"], cache["prev_value"] = cache["buffer"].narrow(3, 0, filled).unbind()
    else:
        select_hypotheses(cache, ("prev_key", "prev_value"), new_order)
    select_hypotheses(cache, ("prev_key_padding_mask",), new_order)


def expand_hypotheses(cache: Cache, beam: int) -> None:
    """Let `beam` consecutive hypotheses continue each hypothesis of a self-attention cache."""
    num_hypotheses = len(cache["prev_key"])
    reorder_hypotheses(cache, torch.arange(num_hypotheses, device=cache["prev_key"].device).repeat_interleave(beam))


def expand_sources(cache: Cache, beam: int) -> None:
    """Let `beam` consecutive hypotheses share what one hypothesis has in a cross-attention cache."""
    cache["beam"] = cache.get("beam", 1) * beam


def reorder_buffer(buffer: Tensor, filled: int, new_order: Tensor) -> Tensor:
    """Return the buffer [2, B, H, capacity, D] with its hypotheses in the new order."""
    # On a GPU, finding the hypotheses that move would make the CPU wait for it.
    if buffer.is_cuda or buffer.numel() < IN_PLACE_NUMEL or len(new_order) != buffer.shape[1]:
        return buffer.index_select(1, new_order)
    moving = (new_order != torch.arange(len(new_order))).nonzero().squeeze(1)
    if len(moving):
        buffer[:, moving, :, :filled] = buffer[:, new_order[moving], :, :filled]
    return buffer


def reorder_sources(cache: Cache, new_order: Tensor) -> None:
    """Let hypothesis i attend to the source of hypothesis new_order[i] in a cross-attention cache.

    A beam search moves hypotheses only within their sentence, so nothing changes until a sentence leaves the batch.

    cache["beam"] consecutive hypotheses share one entry of the cache, or each has its own if the key is missing. If
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
