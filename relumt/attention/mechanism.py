"""The interface of an attention mechanism: what it receives and what it returns.

Shapes, in every file of this package:  B batch, H heads, T queries, S keys, D head size, E = H·D.

A `Mechanism` maps queries, keys and values to one output per query and head. The mask is passed as a structure
(`AttentionMask`), never as a T×S matrix, so that fused kernels and memory linear in length stay possible. `Need` says
what the caller needs beyond the output; nothing else is computed.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from enum import Flag, auto
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from relumt.attention.dropout import dropout
from relumt.attention.kernels import dispatch
from relumt.attention.kernels.checked_calls import PointwiseResult
from relumt.attention.kernels.pointwise_params import Activation, PointwiseParams
from relumt.attention.mask import UNMASKED, AttentionMask
from relumt.attention.norms import HeadMap
from relumt.attention.precision import at_least_float32, without_autocast
from relumt.attention.row_stats import RowStats
from relumt.attention.transforms import add_to, is_in_torch_func


class Need(Flag):
    """What a caller needs beyond the output."""

    NOTHING = 0
    ROW_STATS = auto()
    WEIGHTS = auto()


class AttentionOutput(NamedTuple):
    """The result of a mechanism. It is a tuple because fairseq's search for the first NaN looks inside tuples.

    Attributes:
        output: Σ_j s_ij v_j, [B, H, T, D]. It has the dtype of the computation, at least float32, even for inputs in
            half precision (except for fused paths without a norm): `cast_saturating` casts it back.
        weights: s, [B, H, T, S], before dropout and exactly 0 at hidden keys; None unless needed, or if the mechanism
            has no weights.
        row_stats: statistics of the weights before dropout; None unless needed, or if there are no weights or weights
            may be negative.
    """

    output: Tensor
    weights: Tensor | None = None
    row_stats: RowStats | None = None


class Mechanism(nn.Module):
    """An attention mechanism: scores → weights → dropout → weights @ v, each in at least float32.

    A score is factor·(q·k) + bias. A subclass overrides `weights`, and `factor` or `bias` if need be; a mechanism that
    is not a product of weights and values (the Inhibitor) overrides `forward`. A fused path serves a call only if it
    computes what the class defines: not if a subclass overrides `weights`, nor if a factor or bias is trained or
    differs between heads or keys.

    Large weights are not kept for the backward pass but recomputed, one attention at a time and with the same dropout:
    the memory that a model keeps then grows with T and S, not with their product.

    Attributes:
        has_weights: whether there are weights that a caller can ask for.
        has_negative_weights: whether weights may be negative; then their rows have no entropy and no statistics.
        weights_sum_to_one: whether the weights of a query sum to 1.
        pointwise_activation: the function that turns one score into one weight, if a fused kernel has it; else None.
        normalizes_fused: whether `normalize_fused` needs row sums.
        retain_dropout: whether dropout stays on outside of training (fairseq's --retain-dropout).

    Args:
        num_heads: H.
        head_dim: D.
        dropout: probability of dropping a weight in training.

    Raises:
        ValueError: `dropout` is not a probability, or there are no heads or dimensions.
    """

    has_weights = True
    has_negative_weights = False
    weights_sum_to_one = False
    pointwise_activation: Activation | None = None
    normalizes_fused = False
    retain_dropout = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Drop an inherited `pointwise_activation` if the subclass computes its weights differently."""
        super().__init_subclass__(**kwargs)
        definer = next(base for base in cls.__mro__ if "pointwise_activation" in vars(base))
        if not cls.inherits_methods(definer, "weights", "activation", "scores", "attend"):
            cls.pointwise_activation = None

    @classmethod
    def inherits_methods(cls, base: type, *names: str) -> bool:
        """Return whether these methods are those of `base`, not overridden."""
        return all(getattr(cls, name, None) is getattr(base, name, None) for name in names)

    def __init__(self, num_heads: int, head_dim: int, dropout: float = 0.0) -> None:
        super().__init__()
        if not 0 <= dropout <= 1:
            raise ValueError(f"attention dropout must be between 0 and 1, not {dropout}")
        if num_heads < 1 or head_dim < 1:
            raise ValueError(f"attention needs at least one head of at least one dimension, not {num_heads}×{head_dim}")
        self.num_heads = num_heads
        self.head_dim = head_dim
        self.dropout = dropout

    def extra_repr(self) -> str:
        """Return the sizes and options, for the model that fairseq prints and for comparisons."""
        names = ("num_heads", "head_dim", "dropout", "options")
        return ", ".join(f"{name}={getattr(self, name)}" for name in names if hasattr(self, name))

    def factor(self, T: int, S: int, mask: AttentionMask, like: Tensor) -> Tensor | float:
        """Return the factor of q·k: 1/√D unless overridden; [B or 1, H or 1, T or 1, 1] like `like`, or float.

        Fused kernels compute factors that are the same for all heads.
        """
        return 1 / math.sqrt(self.head_dim)

    def bias(self, T: int, S: int, mask: AttentionMask, like: Tensor) -> Tensor | None:
        """Return what is added to scores: nothing unless overridden; [B or 1, H or 1, T or 1, S or 1] like `like`.

        Fused kernels compute one value per query.
        """
        return None

    def scores(self, q: Tensor, k: Tensor, mask: AttentionMask) -> Tensor:
        """Return factor·(q·k + √D·mask.bias) + bias, [B, H, T, S]. The factor multiplies q, not the larger product."""
        T, S = q.shape[-2], k.shape[-2]
        factor = self.factor(T, S, mask, q)
        scores = (q * factor) @ k.transpose(-2, -1)  # [B, H, T, D] @ [B, H, D, S]
        if mask.bias is not None:
            scores = add_to(scores, mask.bias.to(scores.dtype) * (factor * math.sqrt(self.head_dim)))
        bias = self.bias(T, S, mask, q)
        return scores if bias is None else add_to(scores, bias)

    def zero_hidden_scores(self, scores: Tensor, mask: AttentionMask) -> Tensor:
        """Return scores [B, H, T, S] with 0 at hidden keys.

        Padding costs nothing if its keys are 0, because their scores are products and hence 0 already. Activations
        with negative values have a slope at 0, which would give padding a gradient.
        """
        is_zero = mask.padding_is_zero and mask.bias is None and self.inherits_methods(Mechanism, "scores", "bias")
        if mask.key_mask is not None and is_zero and not self.has_negative_weights:
            mask = replace(mask, key_mask=None)
        return mask.fill_hidden(scores, 0.0)

    def weights(self, scores: Tensor, mask: AttentionMask) -> Tensor:
        """Turn scores [B, H, T, S], which may be overwritten, into weights, exactly 0 at hidden keys."""
        raise NotImplementedError

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, mask: AttentionMask = UNMASKED, need: Need = Need.NOTHING
    ) -> AttentionOutput:
        """Attend with q [B, H, T, D] to k and v [B, H, S, D], by the cheapest path that can return what is needed.

        Raises:
            ValueError: a tensor or a mask has another shape.
        """
        self.check_shapes(q, k, v, mask)
        if self.pointwise_activation is not None:
            # need & …, not … in need, which torch 2.10 cannot compile.
            fused = dispatch.select_pointwise_kernel(q, k, v, mask, bool(need & Need.WEIGHTS), self.exceeds_float16)
            params = self.pointwise_params(q, k, mask) if fused else None
            if fused and params and (result := self.attend_fused(fused, params, q, k, v, mask, need)):
                return result
        k, v, mask = mask.with_zero_padding(k, v)
        if torch.is_grad_enabled() and self.recomputes_weights(q, k, v, need):
            output: AttentionOutput = checkpoint(self.attend, q, k, v, mask, need, use_reentrant=False)
            return output
        return self.attend(q, k, v, mask, need)

    def check_shapes(self, q: Tensor, k: Tensor, v: Tensor, mask: AttentionMask) -> None:
        """Raise ValueError unless q is [B, H, T, D], k [B, H, S, D], v [B, H, S, any size] and the mask fits them.

        Raises:
            TypeError: the mask is no AttentionMask, or some of q, k and v are float64 and others are not.
        """
        if not isinstance(mask, AttentionMask):
            raise TypeError(
                f"expected an AttentionMask, got {type(mask).__name__}; use AttentionMask(key_mask=...) for padding "
                "[B, S], AttentionMask(attn_mask=...) for a pattern [T, S], and AttentionMask() for no mask"
            )
        if len({x.dtype == torch.float64 for x in (q, k, v)}) > 1:
            raise TypeError(f"expected q, k and v of one type, got {q.dtype}, {k.dtype} and {v.dtype}")
        H, D = self.num_heads, self.head_dim
        has_shapes = q.dim() == k.dim() == v.dim() == 4 and (q.shape[1], q.shape[3]) == (H, D)
        if not (has_shapes and k.shape == (q.shape[0], H, k.shape[2], D) and v.shape[:3] == k.shape[:3]):
            raise ValueError(
                f"expected q [B, {H}, T, {D}], k [B, {H}, S, {D}] and v [B, {H}, S, any size]; got "
                f"{list(q.shape)}, {list(k.shape)} and {list(v.shape)}"
            )
        mask.check_shape(q.shape[0], H, q.shape[2], k.shape[2])

    def recomputes_weights(self, q: Tensor, k: Tensor, v: Tensor, need: Need) -> bool:
        """Return whether the backward pass computes weights again; `torch.func` does not support that."""
        return dispatch.has_many_weights(q, k) and self.saves_weights(q, k, v, need) and not is_in_torch_func()

    def saves_weights(self, q: Tensor, k: Tensor, v: Tensor, need: Need) -> bool:
        """Return whether autograd would save the weights that `attend` computes from such tensors."""
        return True

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: AttentionMask, need: Need) -> AttentionOutput:
        """Compute what `forward` returns with PyTorch operators; autograd saves several tensors [B, H, T, S]."""
        with without_autocast(q):
            q, k, v = at_least_float32(q), at_least_float32(k), at_least_float32(v)
            weights = self.weights(self.scores(q, k, mask), mask)
            p = self.dropout_p
            output = (dropout(weights, p) if p else weights) @ v
            row_stats = None
            if need & Need.ROW_STATS and not self.has_negative_weights:
                T, S = weights.shape[-2:]
                row_stats = RowStats.from_weights(weights, mask.count_visible(T, S, weights.device).squeeze(-1))
        return AttentionOutput(output, weights if need & Need.WEIGHTS else None, row_stats)

    def pointwise_params(self, q: Tensor, k: Tensor, mask: AttentionMask) -> PointwiseParams | None:
        """Return what a fused kernel has to know, or None if it cannot express this factor or bias."""
        if self.pointwise_activation is None:
            return None
        T, S = q.shape[-2], k.shape[-2]
        like = at_least_float32(q.new_empty(0))
        factor, bias = self.factor(T, S, mask, like), self.bias(T, S, mask, like)
        if not isinstance(factor, Tensor):
            factor = like.new_full((1, 1, 1, 1), factor)
        for x in (factor, bias):
            if x is not None and (x.requires_grad or x.shape[1] * x.shape[3] != 1):
                return None  # kernels return no gradient for it, and take one value per query
        # [B, 1, T, 1] -> [B, T]
        return PointwiseParams(
            self.pointwise_activation, factor[:, 0, :, 0], None if bias is None else bias[:, 0, :, 0]
        )

    def attend_fused(
        self,
        fused: Callable[..., PointwiseResult | None],
        params: PointwiseParams,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: AttentionMask,
        need: Need,
    ) -> AttentionOutput | None:
        """Compute what `attend` returns with a kernel, in the dtype of q unless an output norm takes float32.

        None if the kernel cannot be used on this machine.
        """
        dtype = params.factor.dtype if self.overrides_postprocess_heads or self.normalizes_fused else q.dtype
        row_sums = 2 if need & Need.ROW_STATS else int(self.normalizes_fused)
        with without_autocast(q):
            result = fused(q, k, v, params, mask.key_mask, mask.is_causal, self.dropout_p, row_sums, dtype)
            if result is None:
                return None
            output, weight_sum, weight_log_weight_sum = self.normalize_fused(*result)
        if weight_sum is None or weight_log_weight_sum is None:
            return AttentionOutput(output)
        num_keys = mask.count_visible(q.shape[-2], k.shape[-2], q.device).squeeze(-1)
        return AttentionOutput(output, None, RowStats(weight_sum, weight_log_weight_sum, num_keys))

    def normalize_fused(self, output: Tensor, weight_sum: Tensor | None, w_log_w: Tensor | None) -> PointwiseResult:
        """Turn a kernel's output [B, H, T, D] and row sums [B, H, T] into those of the weights; nothing by default."""
        return output, weight_sum, w_log_w

    @property
    def overrides_postprocess_heads(self) -> bool:
        """Whether heads pass through more than the identity, such as a norm."""
        return type(self).postprocess_heads is not Mechanism.postprocess_heads

    @property
    def exceeds_float16(self) -> bool:
        """Whether what a kernel computes or receives in float16 can exceed its range: gradients through a norm can."""
        # Gradients alone must not decide: activation checkpointing runs a layer first without them and then with them,
        # and both passes must take the same path to draw the same dropout.
        return self.overrides_postprocess_heads and (self.training or torch.is_grad_enabled())

    @property
    def dropout_p(self) -> float:
        """Probability of dropping a weight in the current mode."""
        return self.dropout if self.training or self.retain_dropout else 0.0

    def init_projections(self, q_proj: nn.Linear, k_proj: nn.Linear) -> None:
        """Adjust the freshly initialized projections of queries and keys; does nothing unless overridden."""

    def postprocess_heads(self, x: Tensor) -> Tensor:
        """Return the concatenated heads [T, B, E] as the output projection takes them; the identity by default."""
        return x

    def head_map(self, x: Tensor) -> HeadMap:
        """Return the linear map that `postprocess_heads` is at x [T, B, E] if its statistics and gates are held fixed.

        For the analysis of norm-weighted attention, which leaves out a class that overrides `postprocess_heads` alone.
        """
        return HeadMap()
