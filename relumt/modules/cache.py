"""Keys and values of what was decoded so far. Shapes: B hypotheses, H heads, n decoded, D head size.

fairseq's cache is a dictionary of tensors, `prev_key` and `prev_value` [B, H, n, D], copied whole at every step to be
one longer, and again to follow the beam. Here these are views of buffers with room for more steps, and of the
hypotheses only those move that the beam moved.
"""

import torch
from torch import Tensor

Cache = dict[str, Tensor | None]

ROOM = 32
"""Steps for which a buffer is made longer at a time."""

LARGE = 1 << 18
"""Numbers in a buffer from which on it costs more to copy it than to see which hypotheses move."""

SIDES = ("key", "value")


def append(cache: Cache, k: Tensor, v: Tensor) -> None:
    """Put k and v [B, H, T, D] behind what `cache` holds."""
    for side, new in zip(SIDES, (k, v), strict=True):
        held = cache.get(f"prev_{side}")
        if torch.is_grad_enabled():  # a buffer that is written to again has no gradient
            cache[f"prev_{side}"] = new if held is None else torch.cat([held, new], dim=2)
            cache.pop(f"{side}_buffer", None)
            continue
        filled = 0 if held is None else held.shape[2]
        buffer = with_room(cache.get(f"{side}_buffer"), held, filled + new.shape[2], new)
        buffer[:, :, filled : filled + new.shape[2]] = new
        cache[f"{side}_buffer"], cache[f"prev_{side}"] = buffer, buffer[:, :, : filled + new.shape[2]]


def with_room(buffer: Tensor | None, held: Tensor | None, steps: int, like: Tensor) -> Tensor:
    """`buffer` if it has room for so many steps, else a longer one that begins with what is `held`."""
    if buffer is not None and buffer.shape[2] >= steps:
        return buffer
    B, H, _, D = like.shape
    longer = like.new_empty(B, H, -(-steps // ROOM) * ROOM, D)
    if held is not None:
        longer[:, :, : held.shape[2]] = held
    return longer


def reorder(cache: Cache, new_order: Tensor) -> None:
    """Let hypothesis i be what hypothesis new_order[i] was."""
    for side in SIDES:
        held, buffer = cache.get(f"prev_{side}"), cache.get(f"{side}_buffer")
        if held is None:
            continue
        if buffer is None:
            cache[f"prev_{side}"] = held.index_select(0, new_order)
            continue
        cache[f"{side}_buffer"] = buffer = moved(buffer, held.shape[2], new_order)
        cache[f"prev_{side}"] = buffer[:, :, : held.shape[2]]
    mask = cache.get("prev_key_padding_mask")
    if mask is not None:
        cache["prev_key_padding_mask"] = mask.index_select(0, new_order)


def reorder_sources(cache: Cache, new_order: Tensor) -> None:
    """The same for a source's keys: they stay while no sentence is done, since a beam moves within its sentence.

    "beam" in the cache is how many hypotheses in turn share a row; without it each has its own.
    """
    if "prev_key" not in cache:
        return
    beam = int(cache["beam"]) if "beam" in cache else 1
    if len(cache["prev_key"]) * beam == len(new_order):
        return
    rows = new_order.view(-1, beam)[:, 0] // beam
    for name in ("prev_key", "prev_value", "prev_key_padding_mask"):
        if cache[name] is not None:
            cache[name] = cache[name].index_select(0, rows)


def moved(buffer: Tensor, filled: int, new_order: Tensor) -> Tensor:
    """The buffer with its rows in the new order; a large one in place, but on a GPU, which would have to be asked."""
    if buffer.is_cuda or buffer.numel() < LARGE or len(new_order) != len(buffer):
        return buffer.index_select(0, new_order)
    rows = (new_order != torch.arange(len(buffer))).nonzero().squeeze(1)
    if len(rows):
        buffer[rows, :, :filled] = buffer[new_order[rows], :, :filled]
    return buffer
