"""The Inhibitor by the identity of [IN] Eq. 7, whose last term is a distance, too. Shapes: B H T S D, V value size.

    Σ_j (v_jd − Z_ij)⁺ = ½ Σ_j v_jd − ½ Σ_j Z_ij + ½ Σ_j |v_jd − Z_ij|

It needs no T·S·D tensor on a CPU (on a GPU, the backward pass of `torch.cdist` has one). But its three terms nearly
cancel, so the error grows with S and with the value that stands in for Z at hidden pairs.
"""

import torch
from torch import Tensor

from relumt.attention.kernels import inhibitor_naive
from relumt.attention.kernels.inhibitor_naive import hidden_pairs, positive_part
from relumt.attention.mask import AttentionMask


def attend(
    q: Tensor, k: Tensor, v: Tensor, gamma: float, shift: Tensor, mask: AttentionMask, dropped: Tensor | None
) -> Tensor:
    """Compute the same as `inhibitor_naive.attend`."""
    if 0 in (*q.shape, *k.shape, *v.shape):
        return inhibitor_naive.attend(q, k, v, gamma, shift, mask, dropped)
    if mask.key_mask is not None:  # the gradients of the three terms cancel at padding up to rounding only
        v = v.where(mask.key_mask[:, None, :, None], 0)
    z = positive_part(torch.cdist(q, k, p=1) / gamma - shift)
    hidden = hidden_pairs(mask, dropped, q.shape[-2], k.shape[-2], q.device)
    if hidden is not None:
        # Above every value of the head, so that the three terms cancel; not equal to one, where the gradient is ½.
        above = 1.001 * v.detach().abs().amax((-2, -1), keepdim=True) + torch.finfo(v.dtype).tiny
        z = torch.where(hidden, above, z)
    distance = torch.cdist(z, v.transpose(-2, -1).contiguous(), p=1)  # [B, H, T, S], [B, H, V, S] -> [B, H, T, V]
    output = (v.sum(-2, keepdim=True) - z.sum(-1, keepdim=True) + distance) / 2
    return output if hidden is None else output.masked_fill(hidden.all(-1, keepdim=True), 0.0)
