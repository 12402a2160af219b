"""The largest elements of long rows."""

import torch
from torch import Tensor

CHUNK = 64
"""Elements whose maximum decides whether any of them can be among the largest."""


def topk_by_chunks(x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the k largest elements of each row of x [R, N] and their indices, [R, k], in descending order.

    The same as `x.topk(k)` except for the order of equal elements and the indices of elements of -∞. PyTorch's CPU
    version copies each row into a heap of pairs. This one only takes the maximum of each chunk: the k chunks with the
    largest maxima contain the k largest elements, because any other chunk has at least k elements, one in each of
    these, that are no smaller.
    """
    N = x.shape[1]
    num_whole = N // CHUNK
    if num_whole <= k:
        largest, indices = x.topk(k)
        return largest, indices
    maxima = x[:, : num_whole * CHUNK].unflatten(1, (num_whole, CHUNK)).amax(-1)  # [R, N/CHUNK]
    if N % CHUNK:
        maxima = torch.cat((maxima, x[:, num_whole * CHUNK :].amax(-1, keepdim=True)), dim=1)
    chunks = maxima.topk(k).indices
    # [R, k, 1] + [CHUNK] -> [R, k·CHUNK]
    columns = (chunks.unsqueeze(-1) * CHUNK + torch.arange(CHUNK, device=x.device)).flatten(1)
    is_outside = columns >= N
    columns.clamp_(max=N - 1)
    largest, positions = x.gather(1, columns).masked_fill_(is_outside, -torch.inf).topk(k)
    return largest, columns.gather(1, positions)
