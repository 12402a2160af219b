"""The seam of relumt: what an attention mechanism is given and what it gives back.

Shapes, in every file of this package:  B batch, H heads, T queries, S keys, D head size, E = H·D.

A `Mechanism` turns queries, keys and values into mixed values. What a query may see travels as its structure
(`AttentionMask`), never as a T×S matrix, so that fused kernels and memory linear in length stay possible. What the
caller needs beyond the mixed values is said by `Need`; nothing else is built.
"""

import math
from collections.abc import Callable
from enum import Flag, auto
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from relumt.attention.kernels import dispatch
from relumt.attention.kernels.pointwise_params import Activation, PointwiseParams
from relumt.attention.mask import AttentionMask
from relumt.attention.precision import at_least_float32, without_autocast
from relumt.attention.row_stats import RowStats

RECOMPUTED_FROM = 1 << 24
"""Weights of one call, B·H·T·S, from which on they are not kept: 64 MiB, of which a model keeps dozens."""


class Need(Flag):
    """What a caller needs beyond the mixed values."""

    NOTHING = 0
    ROW_STATS = auto()
    WEIGHTS = auto()


class AttentionOutput(NamedTuple):
    """What a mechanism gives back; a tuple, so that fairseq's search for the first NaN looks inside.

    Attributes:
        output: [B, H, T, D], in float32 (or float64) where the mechanism computed in it, even for half inputs (all but
            softmax's and the other fused paths without a norm do): `saturated` brings it back.
        weights: [B, H, T, S] before dropout, exactly 0 where a key is not visible; None unless wanted, or
            where the mechanism has none.
        row_stats: of the weights before dropout; None unless wanted, or where weights are none or may be negative.
    """

    output: Tensor
    weights: Tensor | None = None
    row_stats: RowStats | None = None


class Mechanism(nn.Module):
    """An attention mechanism: scores → weights → dropout → weights @ v, each in at least float32.

    A variant overrides `weights`, `factor` or `bias`; one without such a product (the Inhibitor) overrides `forward`. A
    fused path serves what it computes alone: not a variant's weights, nor a factor or bias that is learnt or of a head.

    Large weights are not kept for the backward pass but computed again, attention by attention, dropout and all: what
    is kept then grows with T and S, not with their product.

    Attributes:
        signed: whether weights may be negative; a row of them has no entropy, and no statistics.
        stochastic: whether the weights of a row sum to 1.
        has_weights: whether there are weights at all, to be wanted.
        retain_dropout: whether dropout goes on outside of training (fairseq's --retain-dropout).
        pointwise: the function that makes a weight of its score alone, which a fused kernel has; None for another.

    Args:
        num_heads: H.
        head_dim: D.
        dropout: probability of dropping a weight while training.

    Raises:
        ValueError: a dropout that is no probability.
    """

    has_negative_weights = False
    weights_sum_to_one = False
    has_weights = True
    retain_dropout = False
    pointwise_activation: Activation | None = None

    def __init_subclass__(cls, **kwargs: object) -> None:
        """A variant that makes other weights has no fused kernel, unless it says which."""
        super().__init_subclass__(**kwargs)
        owner = next(base for base in cls.__mro__ if "pointwise_activation" in vars(base))
        if not cls.computes_as(owner, "weights", "activation", "scores", "attend"):
            cls.pointwise_activation = None

    @classmethod
    def computes_as(cls, owner: type, *methods: str) -> bool:
        """Whether these methods are those of `owner`, and not a variant's own."""
        return all(getattr(cls, name, None) is getattr(owner, name, None) for name in methods)

    def __init__(self, num_heads: int, head_dim: int, dropout: float = 0.0) -> None:
        super().__init__()
        if not 0 <= dropout <= 1:
            raise ValueError(f"dropout of attention is a probability, not {dropout}")
        self.num_heads = num_heads
        self.head_dim = head_dim
        self.dropout = dropout

    def factor(self, T: int, S: int, mask: AttentionMask, like: Tensor) -> Tensor | float:
        """What multiplies q·k: 1/√D, or [B or 1, 1, T or 1, 1] of the type of `like`."""
        return 1 / math.sqrt(self.head_dim)

    def bias(self, T: int, S: int, mask: AttentionMask, like: Tensor) -> Tensor | None:
        """What is added to scores, [B or 1, 1, T or 1, 1] of the type of `like`; nothing by default."""
        return None

    def scores(self, q: Tensor, k: Tensor, mask: AttentionMask) -> Tensor:
        """q·k times `factor`, [B, H, T, S]; the factor goes into q, which is smaller than the product."""
        T, S = q.shape[-2], k.shape[-2]
        scores = (q * self.factor(T, S, mask, q)) @ k.transpose(-2, -1)
        bias = self.bias(T, S, mask, q)
        return scores if bias is None else scores.add_(bias)

    def weights(self, scores: Tensor, mask: AttentionMask) -> Tensor:
        """Turn scores [B, H, T, S], which may be overwritten, into weights, 0 where a key is not visible."""
        raise NotImplementedError

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, mask: AttentionMask, need: Need = Need.NOTHING
    ) -> AttentionOutput:
        """Attend with q [B, H, T, D] to k and v [B, H, S, D]; from a size on backward computes the weights again."""
        if self.pointwise_activation:
            # Not by gradients alone: activation checkpointing asks twice, first without, and wants the same dropout.
            trains_norm = self.has_output_norm and (self.training or torch.is_grad_enabled())
            fused = dispatch.pointwise(q, k, v, mask, Need.WEIGHTS in need, trains_norm)
            rows = fused and self.pointwise_params(q, k, mask)
            if rows:
                return self.attend_fused(fused, rows, q, k, v, mask, need)
        large = q.shape[:3].numel() * k.shape[-2] >= RECOMPUTED_FROM
        if large and torch.is_grad_enabled() and self.keeps_weights(q, need):
            return checkpoint(self.attend, q, k, v, mask, need, use_reentrant=False)
        return self.attend(q, k, v, mask, need)

    def keeps_weights(self, q: Tensor, need: Need) -> bool:
        """Whether autograd would keep the weights that `attend` makes of such q."""
        return True

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: AttentionMask, need: Need) -> AttentionOutput:
        """What `forward` gives; autograd keeps its weights [B, H, T, S] several times over."""
        with without_autocast(q):
            q, k, v = at_least_float32(q), at_least_float32(k), at_least_float32(v)
            weights = self.weights(self.scores(q, k, mask), mask)
            p = self.dropout_p
            mixed = (F.dropout(weights, p) if p else weights) @ v
            statistics = None
            if Need.ROW_STATS in need and not self.has_negative_weights:
                T, S = weights.shape[-2:]
                statistics = RowStats.from_weights(weights, mask.count_visible(T, S, weights.device).squeeze(-1))
        return AttentionOutput(mixed, weights if Need.WEIGHTS in need else None, statistics)

    def pointwise_params(self, q: Tensor, k: Tensor, mask: AttentionMask) -> PointwiseParams | None:
        """What a kernel has to know; None where it could not: a factor or bias that is learnt, or of heads or keys."""
        like = at_least_float32(q.new_empty(0))
        factor, bias = (of(q.shape[-2], k.shape[-2], mask, like) for of in (self.factor, self.bias))
        factor = factor if isinstance(factor, Tensor) else like.new_full((1, 1, 1, 1), factor)
        if any(x is not None and (x.requires_grad or x.shape[1] * x.shape[3] != 1) for x in (factor, bias)):
            return None
        return PointwiseParams(self.pointwise_activation, factor[:, 0, :, 0], None if bias is None else bias[:, 0, :, 0])

    def attend_fused(
        self, fused: Callable, rows: PointwiseParams, q: Tensor, k: Tensor, v: Tensor, mask: AttentionMask, need: Need
    ) -> AttentionOutput:
        """What `attend` gives, by a kernel; in half precision `mixed` is too, unless `merged` can take more."""
        T, S = q.shape[-2], k.shape[-2]
        dtype = rows.factor.dtype if self.has_output_norm else q.dtype
        statistics = Need.ROW_STATS in need
        p = self.dropout_p
        with without_autocast(q):
            mixed, weight_sum, w_log_w = fused(q, k, v, rows, mask.key_mask, mask.is_causal, p, statistics, dtype)
        if not statistics:
            return AttentionOutput(mixed)
        return AttentionOutput(
            mixed, None, RowStats(weight_sum, w_log_w, mask.count_visible(T, S, q.device).squeeze(-1))
        )

    @property
    def has_output_norm(self) -> bool:
        """Whether `merged` does something with the concatenated heads."""
        return type(self).postprocess_heads is not Mechanism.postprocess_heads

    @property
    def dropout_p(self) -> float:
        """Of a weight, now."""
        return self.dropout if self.training or self.retain_dropout else 0.0

    def init_projections(self, q_proj: nn.Linear, k_proj: nn.Linear) -> None:
        """Adjust the freshly initialised projections of queries and keys, E or less → E; nothing by default."""

    def postprocess_heads(self, x: Tensor) -> Tensor:
        """Applied to the concatenated heads, [T, B, E] → [T, B, E], before the output projection."""
        return x
