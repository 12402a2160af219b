"""The Inhibitor as [IN] Eq. 3–4 writes it, pair by pair: the oracle of the others. Shapes: B H T S D.

Memory grows with T·S·D, in both directions.
"""

import torch
from torch import Tensor

from relumt.attention.mask import AttentionMask


def positive(x: Tensor) -> Tensor:
    """x⁺ = max(x, 0) with derivative ½ at 0, as the identities of [IN] Eq. 7–8 have it."""
    return (x + x.abs()) / 2


def hidden_pairs(mask: AttentionMask, dropped: Tensor | None, T: int, S: int, device: torch.device) -> Tensor | None:
    """Pairs that count for nothing, [B or 1, H or 1, T, S] bool: not visible, or dropped; None if there are none."""
    seen = mask.to_dense(T, S, device)
    if seen is None or dropped is None:
        return dropped if seen is None else ~seen
    return dropped | ~seen


def inhibit(
    q: Tensor, k: Tensor, v: Tensor, gamma: float, shift: Tensor, mask: AttentionMask, dropped: Tensor | None
) -> Tensor:
    """Σ_j (v_j − (|q_i − k_j|₁/γ − shift)⁺)⁺ over the keys that query i sees, [B, H, T, any].

    Args:
        q: [B, H, T, D].
        k: [B, H, S, D].
        v: [B, H, S, any].
        gamma: γ.
        shift: α of each head, [H, 1, 1].
        visible: what each query may see.
        dropped: pairs that dropout leaves out, [B, H, T, S] bool; None for none.
    """
    z = positive((q[..., :, None, :] - k[..., None, :, :]).abs().sum(-1) / gamma - shift)
    inhibited = positive(v[..., None, :, :] - z[..., None])
    hidden = hidden_pairs(mask, dropped, *z.shape[-2:], z.device)
    return (inhibited if hidden is None else inhibited.masked_fill(hidden[..., None], 0.0)).sum(-2)
