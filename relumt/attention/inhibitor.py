"""The Inhibitor: attention from distances and subtraction, [IN] Eq. 3–5. Shapes: B H T S D.

    Z_ij = (Σ_d |q_id − k_jd| / γ − α)⁺
    H_id = Σ_j (V_jd − Z_ij)⁺                              inhibitor, Eq. 3–4
    H_id = Σ_j [(V⁺_jd − Z_ij)⁺ + (V⁻_jd + Z_ij)⁻]         inhibitor_signed, Eq. 5

over the keys j visible to query i; γ = √D and α = 0.5 as in the paper's experiments, or trained for each head. There is
no product of weights and values, hence there are no weights and no statistics of them. Dropout drops pairs (i, j) from
the sum and takes a byte of memory per pair, but none in the Triton kernel. Since (V⁻ + Z)⁻ = −((−V)⁺ − Z)⁺, Eq. 5 is
computed as Eq. 4 of V⁺ minus Eq. 4 of (−V)⁺.

For q and k of unit variance and 64 dimensions, Z is near 9, above every value: the output and all gradients would be 0.
`init_projections` scales the projections so that Z starts at `initial_distance`. What was tried:
docs/results/inhibitor_init.md.
"""

import math
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn

from relumt.attention.kernels import checked_calls, dispatch, inhibitor_cdist, inhibitor_naive
from relumt.attention.mask import UNMASKED, AttentionMask
from relumt.attention.mechanism import AttentionOutput, Mechanism, Need
from relumt.attention.precision import HALF_DTYPES, at_least_float32, without_autocast
from relumt.attention.variant_spec import NOT_NEGATIVE, POSITIVE

IMPLEMENTATIONS = {"cdist": inhibitor_cdist.attend, "naive": inhibitor_naive.attend}


@dataclass(frozen=True)
class InhibitorOptions:
    """Options of both inhibitors: flags --inhibitor-gamma, --inhibitor-shift …"""

    gamma: float = field(
        default=1.0, metadata={"help": "γ of [IN] Eq. 3, which divides distances, in units of √D", "range": POSITIVE}
    )
    shift: float = field(default=0.5, metadata={"help": "α of [IN] Eq. 3, subtracted from distances"})
    learn: bool = field(default=False, metadata={"help": "train γ and α of each head, starting from the values above"})
    scale: Literal["none", "visible"] = field(
        default="none", metadata={"help": "'visible' divides the sum over keys by their number; the paper does not"}
    )
    initial_distance: float = field(
        default=2.0,
        metadata={
            "help": "initial Z before the shift, for inputs of variance 1; 0 keeps fairseq's",
            "range": NOT_NEGATIVE,
        },
    )
    implementation: Literal["fused", "cdist", "naive"] = field(
        default="fused",
        metadata={"help": "'fused': Triton on a GPU, Numba on a CPU; 'cdist': [IN] Eq. 7–8; 'naive': pair by pair"},
    )


class InhibitorAttention(Mechanism):
    """[IN] Eq. 3–4: attention without products of two variables, for encrypted or integer arithmetic.

    Attributes:
        log_factor: log γ/γ₀ of each head, γ₀ the initial γ, [H, 1, 1]; only if trained.
        shift: α of each head, [H, 1, 1]; only if trained.
    """

    has_weights = False

    def __init__(
        self, num_heads: int, head_dim: int, dropout: float = 0.0, options: InhibitorOptions | None = None
    ) -> None:
        super().__init__(num_heads, head_dim, dropout)
        self.options = options or InhibitorOptions()
        self.gamma = self.options.gamma * math.sqrt(head_dim)
        if self.options.learn:
            self.log_factor = nn.Parameter(torch.empty(num_heads, 1, 1))
            self.shift = nn.Parameter(torch.empty(num_heads, 1, 1))
            self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialize what is trained: γ to γ₀ and α to the value of the options."""
        if self.options.learn:
            nn.init.zeros_(self.log_factor)
            nn.init.constant_(self.shift, self.options.shift)

    @torch.no_grad()
    def init_projections(self, q_proj: nn.Linear, k_proj: nn.Linear) -> None:
        """Scale the projections so that independent unit-variance inputs are `initial_distance` apart on average."""
        if not self.options.initial_distance or q_proj.weight.is_meta or q_proj.weight.numel() < 2:
            return  # a single weight has no variance
        # The difference of q and k is close to normal, and E|x| = √(2/π)·deviation.
        deviation = math.sqrt(sum(p.weight.var().item() * p.in_features for p in (q_proj, k_proj)))
        distance = math.sqrt(2 / math.pi) * deviation * self.head_dim / self.gamma
        if not distance:  # weights of 0 stay 0 at any scale
            return
        for parameter in {*q_proj.parameters(), *k_proj.parameters()}:  # each once, also if it is shared
            parameter.mul_(self.options.initial_distance / distance)

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, mask: AttentionMask = UNMASKED, need: Need = Need.NOTHING
    ) -> AttentionOutput:
        """Attend with q [B, H, T, D] to k and v [B, H, S, D]."""
        self.check_shapes(q, k, v, mask)
        if mask.bias is not None:
            raise ValueError("the Inhibitor computes distances, not scores that a bias could be added to")
        k, v = mask.zero_padding(k), mask.zero_padding(v)
        with without_autocast(q):
            is_half = q.dtype in HALF_DTYPES
            q, k, v = at_least_float32(q), at_least_float32(k), at_least_float32(v)
            if self.options.learn:
                # Scaling both by γ₀/γ scales their distance by it.
                inverse_factor = (-self.log_factor.to(q.dtype)).exp()
                q, k = q * inverse_factor, k * inverse_factor
            output = self.inhibit(q, k, v, mask, is_half)
            if self.options.scale == "visible":
                output = output / mask.num_visible(q.shape[-2], k.shape[-2], q)
        return AttentionOutput(output)

    def inhibit(self, q: Tensor, k: Tensor, v: Tensor, mask: AttentionMask, is_half: bool) -> Tensor:
        """Compute Eq. 4, [B, H, T, any]; `is_half` says that the inputs were rounded to half precision."""
        shift = self.shift.to(q.dtype) if self.options.learn else q.new_full((self.num_heads, 1, 1), self.options.shift)
        p = self.dropout_p
        output, implementation = None, self.options.implementation
        if implementation == "fused" and mask.attn_mask is not None and mask.attn_mask.dim() == 3:
            implementation = "cdist"  # the loops know one pattern for all sentences
        if implementation == "fused" and dispatch.can_use_triton(q, k, v, mask):
            output = checked_calls.attend_inhibitor(q, k, v, self.gamma, shift, mask, p, is_half)
        if output is None:
            pairs = (*q.shape[:-1], k.shape[-2])
            dropped = torch.empty(pairs, dtype=torch.bool, device=q.device).bernoulli_(p) if p else None
            attend = IMPLEMENTATIONS.get(implementation) or dispatch.fused_inhibitor_without_triton(q.device)
            output = attend(q, k, v, self.gamma, shift, mask, dropped)
        return output / max(1 - p, torch.finfo(output.dtype).tiny) if p else output


class SignedInhibitorAttention(InhibitorAttention):
    """[IN] Eq. 5: negative values are inhibited toward 0 too instead of being cut off. The paper prints no result."""

    def inhibit(self, q: Tensor, k: Tensor, v: Tensor, mask: AttentionMask, is_half: bool) -> Tensor:
        """Compute Eq. 5, [B, H, T, D]; `is_half` says that the inputs were rounded to half precision."""
        both = torch.cat([inhibitor_naive.positive_part(v), inhibitor_naive.positive_part(-v)], dim=-1)
        positive, negative = super().inhibit(q, k, both, mask, is_half).chunk(2, dim=-1)
        return positive - negative
