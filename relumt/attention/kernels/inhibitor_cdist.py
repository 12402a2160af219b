"""The Inhibitor through the identity of [IN] Eq. 7, whose last term is a distance too. Shapes: B H T S D.

    Σ_j (V_jd − Z_ij)⁺ = ½ Σ_j V_jd − ½ Σ_j Z_ij + ½ Σ_j |V_jd − Z_ij|

No tensor of T·S·D on a CPU (on a GPU torch's backward pass of `cdist` has one), but three terms that nearly cancel: the
error grows with S and with what fills hidden pairs.
"""

import torch
from torch import Tensor

from relumt.attention.kernels.inhibitor_naive import hidden_pairs, positive
from relumt.attention.mask import AttentionMask


def inhibit(
    q: Tensor, k: Tensor, v: Tensor, gamma: float, shift: Tensor, mask: AttentionMask, dropped: Tensor | None
) -> Tensor:
    """As `inhibitor_naive.inhibit`."""
    z = positive(torch.cdist(q, k, p=1) / gamma - shift)
    hidden = hidden_pairs(mask, dropped, *z.shape[-2:], z.device)
    if hidden is not None:
        # Above every value of the head, so that the three terms cancel; not at it, where a tie's gradient is half.
        above = 1.001 * v.detach().abs().amax((-2, -1), keepdim=True) + torch.finfo(v.dtype).tiny
        z = torch.where(hidden, above, z)
    distance = torch.cdist(z, v.transpose(-2, -1).contiguous(), p=1)
    mixed = (v.sum(-2, keepdim=True) - z.sum(-1, keepdim=True) + distance) / 2
    return mixed if hidden is None else mixed.masked_fill(hidden.all(-1, keepdim=True), 0.0)
