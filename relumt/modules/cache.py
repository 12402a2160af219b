"""Keys and values of what was decoded so far. Shapes: B hypotheses, H heads, n decoded, T new, D head size.

fairseq's cache is a dictionary of tensors, `prev_key` and `prev_value` [B, H, n, D], copied whole at every step to be
one longer, and again to follow the beam. Here these are views of one buffer [2, B, H, room, D], with room for more
steps, and of its hypotheses only those move that the beam moved.
"""

from typing import Any

import torch
from torch import Tensor

Cache = dict[str, Any]

ROOM = 32
"""Steps for which a buffer is made longer at a time."""

LARGE = 1 << 19
"""Numbers in a buffer from which on it costs more to copy it than to see which hypotheses move."""


def append(cache: Cache, kv: Tensor) -> tuple[Tensor, Tensor]:
    """Put keys and values [2, B, H, T, D] behind what `cache` holds; gives back all keys and all values."""
    filled = cache["prev_key"].shape[2] if "prev_key" in cache else 0
    total = filled + kv.shape[3]
    if torch.is_grad_enabled():  # a buffer that is written to again has no gradient
        cache.pop("buffer", None)
        if filled:
            kv = torch.cat([torch.stack((cache["prev_key"], cache["prev_value"])), kv], dim=3)
    else:
        buffer = with_room(cache, filled, total, kv)
        buffer.narrow(3, filled, total - filled).copy_(kv)
        kv = buffer.narrow(3, 0, total)
        cache["buffer"] = buffer
    cache["prev_key"], cache["prev_value"] = kv.unbind()
    return cache["prev_key"], cache["prev_value"]


def with_room(cache: Cache, filled: int, total: int, like: Tensor) -> Tensor:
    """The buffer if it has room for `total` steps, else a longer one that begins with the `filled` ones."""
    buffer = cache.get("buffer")
    if buffer is not None and buffer.shape[3] >= total:
        return buffer
    _, B, H, _, D = like.shape
    longer = like.new_empty(2, B, H, -(-total // ROOM) * ROOM, D)
    if filled:
        for side, held in enumerate((cache["prev_key"], cache["prev_value"])):
            longer[side, :, :, :filled] = held
    return longer


def reorder(cache: Cache, new_order: Tensor) -> None:
    """Let hypothesis i be what hypothesis new_order[i] was."""
    if "buffer" in cache:
        filled = cache["prev_key"].shape[2]
        cache["buffer"] = moved(cache["buffer"], filled, new_order)
        cache["prev_key"], cache["prev_value"] = cache["buffer"].narrow(3, 0, filled).unbind()
    else:
        select(cache, ("prev_key", "prev_value"), new_order)
    select(cache, ("prev_key_padding_mask",), new_order)


def reorder_sources(cache: Cache, new_order: Tensor) -> None:
    """The same for a source's keys: they stay while no sentence is done, since a beam moves within its sentence.

    "beam" in the cache is how many hypotheses in turn share a row; without it each has its own. Where sources that were
    taken for a beam, being equal, turn out to be several sentences, each hypothesis gets its own.
    """
    beam = cache.get("beam", 1)
    if "prev_key" not in cache or len(cache["prev_key"]) * beam == len(new_order):
        return
    rows = new_order // beam
    of_beams = rows.view(-1, beam) if len(rows) % beam == 0 else None
    if of_beams is not None and bool((of_beams == of_beams[:, :1]).all()):
        rows = of_beams[:, 0]
    else:
        cache.pop("beam")
    cache.pop("visible", None)
    select(cache, ("prev_key", "prev_value", "prev_key_padding_mask"), rows)


def select(cache: Cache, names: tuple[str, ...], rows: Tensor) -> None:
    """Keep these rows of the tensors of these names, where there are any."""
    for name in names:
        if cache.get(name) is not None:
            cache[name] = cache[name].index_select(0, rows)


def moved(buffer: Tensor, filled: int, new_order: Tensor) -> Tensor:
    """The buffer with its rows in the new order; a large one in place, but on a GPU, which would have to be asked."""
    if buffer.is_cuda or buffer.numel() < LARGE or len(new_order) != buffer.shape[1]:
        return buffer.index_select(1, new_order)
    rows = (new_order != torch.arange(len(new_order))).nonzero().squeeze(1)
    if len(rows):
        buffer[:, rows, :, :filled] = buffer[:, new_order[rows], :, :filled]
    return buffer
