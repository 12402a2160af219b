"""The Inhibitor as [IN] Eq. 3–4 states it, pair by pair: the reference for the other implementations.

Shapes: B batch, H heads, T queries, S keys, D head size, V value size. Memory grows with T·S·D in both directions.
"""

import torch
from torch import Tensor

from relumt.attention.mask import AttentionMask


def positive_part(x: Tensor) -> Tensor:
    """Return x⁺ = max(x, 0), with derivative ½ at 0 as in the identities of [IN] Eq. 7–8."""
    return (x + x.abs()) / 2


def hidden_pairs(mask: AttentionMask, dropped: Tensor | None, T: int, S: int, device: torch.device) -> Tensor | None:
    """Return which pairs are masked or dropped, [B or 1, H or 1, T, S] bool; None if none can be."""
    visible = mask.to_dense(T, S, device)
    if visible is None or dropped is None:
        return dropped if visible is None else ~visible
    return dropped | ~visible


def attend(
    q: Tensor, k: Tensor, v: Tensor, gamma: float, shift: Tensor, mask: AttentionMask, dropped: Tensor | None
) -> Tensor:
    """Return Σ_j (v_j − (|q_i − k_j|₁/γ − α)⁺)⁺ over the keys that query i sees, [B, H, T, V].

    Args:
        q: [B, H, T, D].
        k: [B, H, S, D].
        v: [B, H, S, V].
        gamma: γ.
        shift: α of each head, [H, 1, 1].
        mask: what each query may attend to.
        dropped: pairs that dropout removes, [B, H, T, S] bool; None without dropout.
    """
    # [B, H, T, 1, D] − [B, H, 1, S, D] -> [B, H, T, S]
    z = positive_part((q[..., :, None, :] - k[..., None, :, :]).abs().sum(-1) / gamma - shift)
    inhibited = positive_part(v[..., None, :, :] - z[..., None])  # [B, H, T, S, V]
    hidden = hidden_pairs(mask, dropped, q.shape[-2], k.shape[-2], q.device)
    return (inhibited if hidden is None else inhibited.masked_fill(hidden[..., None], 0.0)).sum(-2)
