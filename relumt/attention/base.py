"""The seam of relumt: what an attention mechanism is given and what it gives back.

Shapes, in every file of this package:  B batch, H heads, T queries, S keys, D head size, E = H·D.

A `Mechanism` turns queries, keys and values into mixed values. What a query may see travels as its structure
(`Visible`), never as a T×S matrix, so that fused kernels and memory linear in length stay possible. What the
caller needs beyond the mixed values is said by `Want`; nothing else is built.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import Flag, auto
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from relumt.attention.kernels import dispatch
from relumt.attention.kernels.rows import Activation, Rows
from relumt.attention.precision import at_least_float32, without_autocast
from relumt.attention.statistics import RowStatistics

RECOMPUTED_FROM = 1 << 24
"""Weights of one call, B·H·T·S, from which on they are not kept: 64 MiB, of which a model keeps dozens."""


class Want(Flag):
    """What a caller needs beyond the mixed values."""

    NOTHING = 0
    STATISTICS = auto()
    WEIGHTS = auto()


@dataclass(frozen=True)
class Visible:
    """Which keys each query may see: a key must pass all three conditions; True means *may be seen*.

    Attributes:
        keys: [B, S] bool, False for padding; None when all keys are real.
        causal: query i sees keys j ≤ S − T + i (the last query sees every key).
        pairs: [T, S] bool, any other pattern shared by the batch; None when there is none.

    Raises:
        TypeError: a mask is of another type or number of dimensions.
    """

    keys: Tensor | None = None
    causal: bool = False
    pairs: Tensor | None = None

    def __post_init__(self) -> None:
        for name, shape in (("keys", "[B, S]"), ("pairs", "[T, S]")):
            mask = getattr(self, name)
            if mask is not None and (mask.dtype != torch.bool or mask.dim() != 2):
                raise TypeError(f"Visible.{name} is {shape} of bool, not {list(mask.shape)} of {mask.dtype}")

    @property
    def everything(self) -> bool:
        """Whether every query sees every key."""
        return self.keys is None and not self.causal and self.pairs is None

    def dense(self, T: int, S: int, device: torch.device | None = None) -> Tensor | None:
        """The same as one matrix, [B or 1, 1, T or 1, S] bool, ready to broadcast; None if everything is seen."""
        dense = None
        if self.pairs is not None:
            dense = self.pairs[None, None]
        if self.causal and T != 1:
            earlier = torch.ones(T, S, dtype=torch.bool, device=device).tril_(S - T)[None, None]
            dense = earlier if dense is None else dense & earlier
        if self.keys is not None:
            real = self.keys[:, None, None]
            dense = real if dense is None else dense & real
        return dense

    def n(self, T: int, S: int, like: Tensor) -> Tensor | int:
        """`count` as formulas want it: at least 1, of the type and on the device of `like`; S where all is seen."""
        if self.keys is None and self.pairs is None and (T == 1 or not self.causal):
            return max(S, 1)
        return self.count(T, S, like.device).clamp(min=1).to(like.dtype)

    def rows(self, start: int, stop: int, T: int, S: int) -> tuple["Visible", int]:
        """What queries start…stop − 1 of T see, and how many keys, from the first, hold all of it."""
        keys = max(0, min(S, S - T + stop)) if self.causal else S
        return Visible(
            None if self.keys is None else self.keys[:, :keys],
            self.causal,
            None if self.pairs is None else self.pairs[start:stop, :keys],
        ), keys

    def hide_(self, x: Tensor, value: float) -> Tensor:
        """Overwrite x [B, H, T, S] with `value` where a key is not visible."""
        if self.pairs is None and (not self.causal or x.shape[-2] == 1):
            return x if self.keys is None else x.masked_fill_(self._padding, value)
        return x.masked_fill_(~self.dense(*x.shape[-2:], device=x.device), value)

    def count(self, T: int, S: int, device: torch.device | None = None) -> Tensor:
        """Number of keys each query sees, [B or 1, 1, T or 1, 1] int64: the n of length-dependent formulas."""
        if self.pairs is not None:
            return self.dense(T, S, device).sum(-1, keepdim=True)
        if not self.causal or T == 1:
            if self.keys is None:
                return torch.full((1, 1, 1, 1), S, device=device)
            return self._real
        last_key = torch.arange(S - T, S, device=device)
        if self.keys is None:
            return (last_key + 1).clamp(min=0)[None, None, :, None]
        if not S:
            return last_key.new_zeros(1, 1, 1, 1)
        seen = self.keys.cumsum(-1).index_select(-1, last_key.clamp(min=0))
        return (seen * (last_key >= 0))[:, None, :, None]

    @property
    def _padding(self) -> Tensor:
        """[B, 1, 1, S] bool, True for padding."""
        return self._kept("padding", lambda keys: ~keys[:, None, None])

    @property
    def _real(self) -> Tensor:
        """[B, 1, 1, 1] int64, number of real keys."""
        return self._kept("real", lambda keys: keys.sum(-1)[:, None, None, None])

    def _kept(self, name: str, of: Callable[[Tensor], Tensor]) -> Tensor:
        """What `of` makes of `keys`, as long as they are the same: decoding asks for it at every step.

        Not where nothing tells that they have changed, where it could not be trained with, or where it is compiled.
        """
        if torch.compiler.is_compiling() or torch.is_inference_mode_enabled() or self.keys.is_inference():
            return of(self.keys)
        version, kept = vars(self).get(name, (None, None))
        if version != self.keys._version:
            kept = of(self.keys)
            vars(self)[name] = self.keys._version, kept
        return kept


class Attended(NamedTuple):
    """What a mechanism gives back; a tuple, so that fairseq's search for the first NaN looks inside.

    Attributes:
        mixed: [B, H, T, D], in float32 (or float64) where the mechanism computed in it, even for half inputs (all but
            softmax's and the other fused paths without a norm do): `saturated` brings it back.
        weights: [B, H, T, S] before dropout, exactly 0 where a key is not visible; None unless wanted, or
            where the mechanism has none.
        statistics: of the weights before dropout; None unless wanted, or where weights are none or may be negative.
    """

    mixed: Tensor
    weights: Tensor | None = None
    statistics: RowStatistics | None = None


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

    signed = False
    stochastic = False
    has_weights = True
    retain_dropout = False
    pointwise: Activation | None = None

    def __init_subclass__(cls, **kwargs: object) -> None:
        """A variant that makes other weights has no fused kernel, unless it says which."""
        super().__init_subclass__(**kwargs)
        owner = next(base for base in cls.__mro__ if "pointwise" in vars(base))
        if not cls.computes_as(owner, "weights", "activation", "scores", "attend"):
            cls.pointwise = None

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

    def factor(self, T: int, S: int, visible: Visible, like: Tensor) -> Tensor | float:
        """What multiplies q·k: 1/√D, or [B or 1, 1, T or 1, 1] of the type of `like`."""
        return 1 / math.sqrt(self.head_dim)

    def bias(self, T: int, S: int, visible: Visible, like: Tensor) -> Tensor | None:
        """What is added to scores, [B or 1, 1, T or 1, 1] of the type of `like`; nothing by default."""
        return None

    def scores(self, q: Tensor, k: Tensor, visible: Visible) -> Tensor:
        """q·k times `factor`, [B, H, T, S]; the factor goes into q, which is smaller than the product."""
        T, S = q.shape[-2], k.shape[-2]
        scores = (q * self.factor(T, S, visible, q)) @ k.transpose(-2, -1)
        bias = self.bias(T, S, visible, q)
        return scores if bias is None else scores.add_(bias)

    def weights(self, scores: Tensor, visible: Visible) -> Tensor:
        """Turn scores [B, H, T, S], which may be overwritten, into weights, 0 where a key is not visible."""
        raise NotImplementedError

    def forward(self, q: Tensor, k: Tensor, v: Tensor, visible: Visible, want: Want = Want.NOTHING) -> Attended:
        """Attend with q [B, H, T, D] to k and v [B, H, S, D]; from a size on backward computes the weights again."""
        if self.pointwise:
            # Not by gradients alone: activation checkpointing asks twice, first without, and wants the same dropout.
            trains_norm = self.normed and (self.training or torch.is_grad_enabled())
            fused = dispatch.pointwise(q, k, v, visible, Want.WEIGHTS in want, trains_norm)
            rows = fused and self.kernel_rows(q, k, visible)
            if rows:
                return self.attend_fused(fused, rows, q, k, v, visible, want)
        large = q.shape[:3].numel() * k.shape[-2] >= RECOMPUTED_FROM
        if large and torch.is_grad_enabled() and self.keeps_weights(q, want):
            return checkpoint(self.attend, q, k, v, visible, want, use_reentrant=False)
        return self.attend(q, k, v, visible, want)

    def keeps_weights(self, q: Tensor, want: Want) -> bool:
        """Whether autograd would keep the weights that `attend` makes of such q."""
        return True

    def attend(self, q: Tensor, k: Tensor, v: Tensor, visible: Visible, want: Want) -> Attended:
        """What `forward` gives; autograd keeps its weights [B, H, T, S] several times over."""
        with without_autocast(q):
            q, k, v = at_least_float32(q), at_least_float32(k), at_least_float32(v)
            weights = self.weights(self.scores(q, k, visible), visible)
            p = self.drop_probability
            mixed = (F.dropout(weights, p) if p else weights) @ v
            statistics = None
            if Want.STATISTICS in want and not self.signed:
                T, S = weights.shape[-2:]
                statistics = RowStatistics.of(weights, visible.count(T, S, weights.device).squeeze(-1))
        return Attended(mixed, weights if Want.WEIGHTS in want else None, statistics)

    def kernel_rows(self, q: Tensor, k: Tensor, visible: Visible) -> Rows | None:
        """What a kernel has to know; None where it could not: a factor or bias that is learnt, or of heads or keys."""
        like = at_least_float32(q.new_empty(0))
        factor, bias = (of(q.shape[-2], k.shape[-2], visible, like) for of in (self.factor, self.bias))
        factor = factor if isinstance(factor, Tensor) else like.new_full((1, 1, 1, 1), factor)
        if any(x is not None and (x.requires_grad or x.shape[1] * x.shape[3] != 1) for x in (factor, bias)):
            return None
        return Rows(self.pointwise, factor[:, 0, :, 0], None if bias is None else bias[:, 0, :, 0])

    def attend_fused(
        self, fused: Callable, rows: Rows, q: Tensor, k: Tensor, v: Tensor, visible: Visible, want: Want
    ) -> Attended:
        """What `attend` gives, by a kernel; in half precision `mixed` is too, unless `merged` can take more."""
        T, S = q.shape[-2], k.shape[-2]
        dtype = rows.factor.dtype if self.normed else q.dtype
        statistics = Want.STATISTICS in want
        p = self.drop_probability
        with without_autocast(q):
            mixed, total, s_log_s = fused(q, k, v, rows, visible.keys, visible.causal, p, statistics, dtype)
        if not statistics:
            return Attended(mixed)
        return Attended(mixed, None, RowStatistics(total, s_log_s, visible.count(T, S, q.device).squeeze(-1)))

    @property
    def normed(self) -> bool:
        """Whether `merged` does something with the concatenated heads."""
        return type(self).merged is not Mechanism.merged

    @property
    def drop_probability(self) -> float:
        """Of a weight, now."""
        return self.dropout if self.training or self.retain_dropout else 0.0

    def initialise(self, q_proj: nn.Linear, k_proj: nn.Linear) -> None:
        """Adjust the freshly initialised projections of queries and keys, E or less → E; nothing by default."""

    def merged(self, x: Tensor) -> Tensor:
        """Applied to the concatenated heads, [T, B, E] → [T, B, E], before the output projection."""
        return x
