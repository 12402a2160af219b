"""The Inhibitor by the identity of [IN] Eq. 7, whose last term is a distance, too. Shapes: B H T S D, V value size.

    Σ_j (v_jd − Z_ij)⁺ = ½ Σ_j v_jd − ½ Σ_j Z_ij + ½ Σ_j |v_jd − Z_ij|

It needs no T·S·D tensor on a CPU; on a GPU, the backward pass of `torch.cdist` has one, so `distances` works in chunks.
Its three terms nearly cancel: the error grows with S and with the value that stands in for Z at hidden pairs.
"""

import torch
from torch import Tensor

from relumt.attention.kernels import inhibitor_naive
from relumt.attention.kernels.inhibitor_naive import hidden_pairs, positive_part
from relumt.attention.mask import AttentionMask

MAX_DIFFERENCES = 1 << 29
"""Maximum number of coordinates whose differences one call of `torch.cdist` computes on a GPU.

They take 2 GiB in its backward pass, which counts them in 32 bits: from 2³¹ on it accesses memory out of bounds.
"""


def attend(
    q: Tensor, k: Tensor, v: Tensor, gamma: float, shift: Tensor, mask: AttentionMask, dropped: Tensor | None
) -> Tensor:
    """Compute the same as `inhibitor_naive.attend`."""
    if 0 in (*q.shape, *k.shape, *v.shape):
        return inhibitor_naive.attend(q, k, v, gamma, shift, mask, dropped)
    if mask.key_mask is not None:  # the gradients of the three terms cancel at padding up to rounding only
        v = v.where(mask.key_mask[:, None, :, None], 0)
    z = positive_part(distances(q, k) / gamma - shift)
    hidden = hidden_pairs(mask, dropped, q.shape[-2], k.shape[-2], q.device)
    if hidden is not None:
        # Above every value of the head, so that the three terms cancel; not equal to one, where the gradient is ½.
        above = 1.001 * v.detach().abs().amax((-2, -1), keepdim=True) + torch.finfo(v.dtype).tiny
        z = torch.where(hidden, above, z)
    distance = distances(z, v.transpose(-2, -1).contiguous())  # [B, H, T, S], [B, H, V, S] -> [B, H, T, V]
    output = (v.sum(-2, keepdim=True) - z.sum(-1, keepdim=True) + distance) / 2
    return output if hidden is None else output.masked_fill(hidden.all(-1, keepdim=True), 0.0)


def distances(x: Tensor, y: Tensor) -> Tensor:
    """Return the Manhattan distances of the vectors of x [B, H, M, D] and y [B, H, N, D], [B, H, M, N]."""
    return distances_in_chunks(x, y, MAX_DIFFERENCES) if x.is_cuda else torch.cdist(x, y, p=1)


def distances_in_chunks(x: Tensor, y: Tensor, max_differences: int) -> Tensor:
    """Compute `distances` with at most `max_differences` differences per call of `torch.cdist`, or one vector of x."""
    per_vector = y.shape[-2] * y.shape[-1]
    per_head = x.shape[-2] * per_vector
    shape = x.shape[:2]
    x, y = x.flatten(0, 1), y.flatten(0, 1)  # [B, H, M, D] -> [B·H, M, D]
    heads, rows = max(1, max_differences // per_head), max(1, max_differences // per_vector)
    chunks = [
        torch.cat([torch.cdist(rows_of_x, some_y, p=1) for rows_of_x in some_x.split(rows, 1)], 1)
        for some_x, some_y in zip(x.split(heads), y.split(heads), strict=True)
    ]
    return torch.cat(chunks).view(*shape, *chunks[0].shape[1:])  # [B·H, M, N] -> [B, H, M, N]
