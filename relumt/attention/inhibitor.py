"""The Inhibitor: attention from distances and subtraction, [IN] Eq. 3–5. Shapes: B H T S D.

    Z_ij = (Σ_d |q_id − k_jd| / γ − α)⁺,    H_id = Σ_j (V_jd − Z_ij)⁺              inhibitor, Eq. 3–4
                                            H_id = Σ_j [(V⁺_jd − Z_ij)⁺ + (V⁻_jd + Z_ij)⁻] inhibitor_signed, Eq. 5

over the keys j visible to query i; γ = √D and α = 0.5 as in the paper's experiments, or learnt for each head. There is
no product of weights and values, so there are no weights and no statistics of them; dropout drops pairs (i, j) of the
sum, and takes a byte for each pair. Since (V⁻ + Z)⁻ = −((−V)⁺ − Z)⁺, Eq. 5 is Eq. 4 of V⁺ less Eq. 4 of (−V)⁺, and is
computed so. On a GPU dropout takes no bytes.

With unit-variance q and k of 64 dimensions Z is near 9, above every value: the output and every gradient would be 0.
`initialise` scales the projections so that Z starts at `initial_distance`: docs/results.md has what was tried.
"""

import math
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn

from relumt.attention.kernels import dispatch, inhibitor_cdist, inhibitor_fused, inhibitor_naive
from relumt.attention.mask import AttentionMask
from relumt.attention.mechanism import AttentionOutput, Mechanism, Need
from relumt.attention.precision import HALF, at_least_float32, without_autocast

IMPLEMENTATIONS = {
    "fused": inhibitor_fused.inhibit,
    "cdist": inhibitor_cdist.inhibit,
    "naive": inhibitor_naive.inhibit,
}


@dataclass(frozen=True)
class InhibitorOptions:
    """Options of the inhibitors: command-line flags --inhibitor-gamma, --inhibitor-shift …"""

    gamma: float = field(default=1.0, metadata={"help": "γ of [IN] Eq. 3, which divides distances, in units of √D"})
    shift: float = field(default=0.5, metadata={"help": "α, subtracted from distances"})
    learn: bool = field(default=False, metadata={"help": "learn γ and α of each head, starting from the values above"})
    scale: Literal["none", "visible"] = field(
        default="none", metadata={"help": "divide the sum over keys by their number, or do not, as the paper"}
    )
    initial_distance: float = field(
        default=2.0, metadata={"help": "Z before the shift at the start, for inputs of variance 1; 0 leaves fairseq's"}
    )
    implementation: Literal["fused", "cdist", "naive"] = field(
        default="fused",
        metadata={"help": "Triton on a GPU, else compiled; the identity of [IN] Eq. 7–8; or pair by pair"},
    )

    def __post_init__(self) -> None:
        if not self.gamma > 0:
            raise ValueError(f"--inhibitor-gamma must be positive, not {self.gamma}")
        if self.initial_distance < 0:
            raise ValueError(f"--inhibitor-initial-distance must not be negative, not {self.initial_distance}")


class InhibitorAttention(Mechanism):
    """[IN] Eq. 3–4, with what `InhibitorOptions` says.

    Attributes:
        log_factor: of each head's γ, log γ/γ₀, [H, 1, 1]; only if learnt.
        shift: each head's α, [H, 1, 1]; only if learnt.
    """

    has_weights = False

    def __init__(
        self, num_heads: int, head_dim: int, dropout: float = 0.0, options: InhibitorOptions | None = None
    ) -> None:
        super().__init__(num_heads, head_dim, dropout)
        self.options = options or InhibitorOptions()
        if self.options.implementation == "fused":
            inhibitor_fused.require_compiler()
        self._inhibit = IMPLEMENTATIONS[self.options.implementation]
        self.gamma = self.options.gamma * math.sqrt(head_dim)
        if self.options.learn:
            self.log_factor = nn.Parameter(torch.zeros(num_heads, 1, 1))
            self.shift = nn.Parameter(torch.full((num_heads, 1, 1), self.options.shift))

    @torch.no_grad()
    def init_projections(self, q_proj: nn.Linear, k_proj: nn.Linear) -> None:
        """Scale the projections so that independent unit-variance inputs are `initial_distance` apart on average."""
        if not self.options.initial_distance:
            return
        # The difference of q and k is close to normal, and E|x| = √(2/π)·deviation.
        deviation = math.sqrt(sum(p.weight.var().item() * p.in_features for p in (q_proj, k_proj)))
        distance = math.sqrt(2 / math.pi) * deviation * self.head_dim / self.gamma
        if not distance:  # weights of 0 are as near at any scale
            return
        for projection in (q_proj, k_proj):
            for parameter in projection.parameters():
                parameter.mul_(self.options.initial_distance / distance)

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, mask: AttentionMask, need: Need = Need.NOTHING
    ) -> AttentionOutput:
        """Attend with q [B, H, T, D] to k and v [B, H, S, D]."""
        with without_autocast(q):
            half = q.dtype in HALF
            q, k, v = at_least_float32(q), at_least_float32(k), at_least_float32(v)
            if self.options.learn:
                nearness = (-self.log_factor.to(q.dtype)).exp()
                q, k = q * nearness, k * nearness
            mixed = self.inhibit(q, k, v, mask, half)
            if self.options.scale == "visible":
                mixed = mixed / mask.num_visible(q.shape[-2], k.shape[-2], q)
        return AttentionOutput(mixed)

    def inhibit(self, q: Tensor, k: Tensor, v: Tensor, mask: AttentionMask, half: bool) -> Tensor:
        """Eq. 4, [B, H, T, any], of q and k divided by each head's learnt factor; `half` where they were rounded."""
        shift = self.shift.to(q.dtype) if self.options.learn else q.new_full((self.num_heads, 1, 1), self.options.shift)
        p = self.dropout_p
        if self.options.implementation == "fused" and dispatch.serves(q, k, v, mask):
            mixed = dispatch.inhibit(q, k, v, self.gamma, shift, mask, p, half)
        else:
            pairs = (*q.shape[:-1], k.shape[-2])
            dropped = torch.empty(pairs, dtype=torch.bool, device=q.device).bernoulli_(p) if p else None
            mixed = self._inhibit(q, k, v, self.gamma, shift, mask, dropped)
        return mixed / max(1 - p, torch.finfo(mixed.dtype).tiny) if p else mixed


class SignedInhibitorAttention(InhibitorAttention):
    """[IN] Eq. 5: values below zero come nearer to it too, instead of giving nothing."""

    def inhibit(self, q: Tensor, k: Tensor, v: Tensor, mask: AttentionMask, half: bool) -> Tensor:
        """Eq. 5, [B, H, T, D], of q and k divided by each head's learnt factor."""
        both = torch.cat([inhibitor_naive.positive(v), inhibitor_naive.positive(-v)], dim=-1)
        above, below = super().inhibit(q, k, both, mask, half).chunk(2, dim=-1)
        return above - below
