"""The Inhibitor ([IN] Eq. 3–5) in integers. Shapes: B batch, H heads, T queries, S keys, D head size, V value size.

    Δ_ij = Σ_d |q_id − k_jd|                          int32 sum of int16 numbers
    Z_ij = (Δ_ij · 2^−r − α)⁺, at most 2^(b−1) − 1    a rounding shift by r bits, then a subtraction
    H_id = Σ_j (V_jd − Z_ij)⁺                         int32 sum of int16 numbers

There is no multiplication and no division. One scale s serves q and k. Values have the scale s·2^r/γ, so dividing by γ
costs nothing and 2^r makes Δ as large as values are. Each head has its own scales.

Saturation of Z changes no result: no value is larger than 2^(b−1) − 1, so a larger Z inhibits nothing more. Hidden keys
get this Z too, which gives them no weight. Both sums are proven to fit: `IntegerInhibitor` refuses sizes for which
D·(2^b − 2) or S·(2^(b−1) − 1) does not.
"""

import math

import torch
from torch import Tensor

from relumt.attention.inhibitor import InhibitorAttention, InhibitorOptions
from relumt.attention.mask import AttentionMask
from relumt.attention.mechanism import AttentionOutput, Mechanism, Need
from relumt.attention.precision import at_least_float32
from relumt.quantized.calibration import HeadRanges
from relumt.quantized.integers import largest_integer, quantize, scale_for, signed_width

DISTANCE_LIMIT = 2**30
"""Bound of shifted distances and of α in int32; their difference then fits, too."""

SUM_BITS = 32
"""Width of the accumulators of sums over keys."""

MAX_RIGHT_SHIFT = 20
"""Largest right shift of distances. Heads that would need a larger one, because their queries and keys are much smaller
than their values, get a coarser scale of q and k."""

CHUNK_ELEMENTS = 2**20
"""Elements of [B, H, T, S, D] that are computed at once, about as many as fit into a core's cache."""


class IntegerInhibitor(Mechanism):
    """[IN] Eq. 3–4 in integers: rounds q, k and v, computes without multiplications, and returns Σ_j (V − Z)⁺ in float.

    Args:
        num_heads: H.
        head_dim: D.
        bits: width b of q, k, v and Z.
        options: options of the float mechanism; only `scale` is read, the others are part of the buffers.

    Attributes:
        pair_scale: scale of q and k, [H, 1, 1] float64.
        value_scale: scale of v, Z, α and the output, [H, 1, 1] float64.
        left_shift, right_shift: r = right_shift − left_shift, [H, 1, 1] int32; at least one of them is 0.
        offset: α as an integer, [H, 1, 1] int32.

    Raises:
        ValueError: the distances of D dimensions could overflow.
    """

    has_weights = False
    pair_scale: Tensor
    value_scale: Tensor
    left_shift: Tensor
    right_shift: Tensor
    offset: Tensor

    def __init__(self, num_heads: int, head_dim: int, bits: int, options: InhibitorOptions | None = None) -> None:
        super().__init__(num_heads, head_dim)
        self.options = options or InhibitorOptions()
        self.bits = bits
        if self.largest_distance >= DISTANCE_LIMIT:
            raise ValueError(f"distances of {head_dim} dimensions of {bits} bits do not fit int32; use fewer bits")
        self.register_buffer("pair_scale", torch.ones(num_heads, 1, 1, dtype=torch.float64))
        self.register_buffer("value_scale", torch.ones(num_heads, 1, 1, dtype=torch.float64))
        for name in ("left_shift", "right_shift", "offset"):
            self.register_buffer(name, torch.zeros(num_heads, 1, 1, dtype=torch.int32))

    @property
    def largest_distance(self) -> int:
        """The largest Δ: D differences of two integers of opposite sign."""
        return self.head_dim * 2 * largest_integer(self.bits)

    def distance_width(self) -> int:
        """Return the bits that a signed accumulator of distances needs at worst."""
        return signed_width(self.largest_distance)

    def sum_width(self, num_keys: int) -> int:
        """Return the bits that a signed accumulator of the sum over so many keys needs at worst."""
        return signed_width(num_keys * largest_integer(self.bits))

    @torch.no_grad()
    def quantize_from(self, original: InhibitorAttention, ranges: HeadRanges) -> None:
        """Choose the scales for numbers of these ranges, and take γ and α from the float mechanism."""
        gamma = torch.full((self.num_heads, 1, 1), original.gamma, dtype=torch.float64)
        shift = torch.full_like(gamma, original.options.shift)
        if original.options.learn:
            gamma *= original.log_factor.double().exp()
            shift = original.shift.double()
        needed_scale = scale_for(ranges.values.view(-1, 1, 1), self.bits)
        pair_scale = scale_for(ranges.pairs.view(-1, 1, 1), self.bits)
        pair_scale = pair_scale.maximum(needed_scale * gamma / 2**MAX_RIGHT_SHIFT)
        max_left_shift = int(math.log2((DISTANCE_LIMIT - 1) / self.largest_distance))
        r = (needed_scale * gamma / pair_scale).log2().ceil().clamp(-max_left_shift, MAX_RIGHT_SHIFT)
        self.pair_scale.copy_(pair_scale)
        self.value_scale.copy_(pair_scale / gamma * 2**r)
        self.right_shift.copy_(r.clamp(min=0))
        self.left_shift.copy_((-r).clamp(min=0))
        # A larger α would make every Z 0, a smaller one every output, as these bounds do.
        self.offset.copy_((shift / self.value_scale).round().clamp(-DISTANCE_LIMIT, DISTANCE_LIMIT))

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, mask: AttentionMask, need: Need = Need.NOTHING
    ) -> AttentionOutput:
        """Attend with q [B, H, T, D] to k and v [B, H, S, D], all in float.

        Raises:
            ValueError: a tensor has another shape, or the sum over so many keys could overflow.
        """
        self.check_shapes(q, k, v, mask)
        T, S = q.shape[-2], k.shape[-2]
        if self.sum_width(S) > SUM_BITS:
            raise ValueError(f"the sum over {S} keys of {self.bits} bits does not fit int{SUM_BITS}; use fewer bits")
        k, v = mask.zero_padding(k), mask.zero_padding(v)
        q_integers, k_integers = (quantize(x, self.pair_scale, self.bits).int() for x in (q, k))
        v_integers = quantize(v, self.value_scale, self.bits).int()
        visible = mask.to_dense(T, S, q.device)
        sums = self.attend_integers(q_integers, k_integers, v_integers, visible)
        output = (sums * self.value_scale).to(at_least_float32(q).dtype)
        is_nan = q.isnan().any(-1, keepdim=True)  # no integer is NaN, and a fault must not be hidden
        for x in (k, v):
            is_nan = is_nan | x.isnan().any(-1, keepdim=True).any(-2, keepdim=True)
        output = output.masked_fill(is_nan, float("nan"))
        if self.options.scale == "visible":
            output = output / mask.num_visible(T, S, output)
        return AttentionOutput(output)

    def attend_integers(self, q: Tensor, k: Tensor, v: Tensor, visible: Tensor | None) -> Tensor:
        """Compute the output in units of `value_scale` with int32 operators only, in chunks of queries.

        Args:
            q: [B, H, T, D] int32, as k [B, H, S, D] and v [B, H, S, V].
            k, v: see q.
            visible: [B or 1, 1, T or 1, S] bool; None if no pair is hidden.

        Returns:
            [B, H, T, V] int32.
        """
        T, per_query = q.shape[-2], max(1, k.numel())
        size = max(1, CHUNK_ELEMENTS // per_query)
        outputs: list[Tensor] = []
        for queries in q.split(size, dim=-2) if T else ():
            start = sum(output.shape[-2] for output in outputs)
            rows = visible if visible is None or visible.shape[-2] == 1 else visible[..., start : start + size, :]
            outputs.append(self.inhibit(self.inhibition(queries, k, rows), v))
        return torch.cat(outputs, dim=-2) if outputs else q.new_zeros(*q.shape[:-1], v.shape[-1])

    def inhibition(self, q: Tensor, k: Tensor, visible: Tensor | None) -> Tensor:
        """Return Z, [B, H, T, S] int32: the largest integer for hidden pairs, and nothing larger."""
        # [B, H, T, 1, D] − [B, H, 1, S, D] -> [B, H, T, S]
        distance = (q[..., :, None, :] - k[..., None, :, :]).abs_().sum(-1, dtype=torch.int32)
        half = (1 << self.right_shift) >> 1  # rounds instead of flooring
        z = ((distance << self.left_shift) + half) >> self.right_shift
        largest = largest_integer(self.bits)
        z = (z - self.offset).clamp_(0, largest)
        return z if visible is None else z.masked_fill_(~visible, largest)

    def inhibit(self, z: Tensor, v: Tensor) -> Tensor:
        """Return Σ_j (V_j − Z_ij)⁺, [B, H, T, V] int32."""
        return (v[..., None, :, :] - z[..., None]).clamp_(min=0).sum(-2, dtype=torch.int32)  # [B, H, T, S, V] before


class SignedIntegerInhibitor(IntegerInhibitor):
    """[IN] Eq. 5 in integers."""

    def inhibit(self, z: Tensor, v: Tensor) -> Tensor:
        """Return Σ_j [(V⁺_j − Z_ij)⁺ − ((−V_j)⁺ − Z_ij)⁺], [B, H, T, V] int32; Z is not negative, so (V)⁺ is V."""
        return super().inhibit(z, v) - super().inhibit(z, -v)
