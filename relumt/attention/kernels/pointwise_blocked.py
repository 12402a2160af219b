"""Attention with pointwise weights on a CPU, in blocks. Shapes: B batch, H heads, T queries, S keys, D head size.

The same function as `pointwise_triton`, with PyTorch operators: on so few queries at a time that their weights stay in
the processor's cache. The backward pass computes each block's weights again, with the same dropout, so no T×S tensor
is ever kept. Keys in the future of all queries of a block are skipped, and so is padding at either end of a sentence.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._compile import _disable_dynamo  # torch.compiler.disable would import torch._dynamo now: 2 seconds

from relumt.attention.kernels.double_backward import forbid_double_backward
from relumt.attention.kernels.key_bounds import key_bounds
from relumt.attention.kernels.pointwise_params import Activation, PointwiseParams
from relumt.attention.padding import zero_padding
from relumt.attention.precision import cast_saturating
from relumt.attention.row_stats import finite_log

BLOCK_WEIGHTS = 1 << 19
"""Weights per block: 2 MiB, with two or three such tensors in use. With two threads it was the fastest of 2¹⁶ to 2¹⁹;
one thread is slightly faster with half of it. It is constant because dropout depends on the blocks."""


@_disable_dynamo
def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    params: PointwiseParams,
    key_mask: Tensor | None,
    is_causal: bool,
    dropout_p: float,
    need_row_stats: bool,
    dtype: torch.dtype,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Compute the same as `pointwise_triton.attend`, for heads and values of any size.

    Half precision is computed in float32. Second derivatives and `torch.func` need RELUMT_KERNELS=reference.
    """
    q, k, v = (x.to(params.factor.dtype) for x in (q, k, v))
    seed = int(torch.randint(2**31 - 1, ())) if dropout_p else 0
    bias = None if params.bias is None else params.bias.expand(q.shape[0], q.shape[2])
    call = _Call(params.activation, bias, is_causal, dropout_p, seed, need_row_stats)
    scaled_q = q * params.factor[:, None, :, None]
    k, v = (x if key_mask is None else zero_padding(x, key_mask) for x in (k, v))
    output, weight_sum, w_log_w = _Attend.apply(scaled_q, k.contiguous(), v.contiguous(), key_mask, call)
    return cast_saturating(output, dtype), weight_sum, w_log_w


@dataclass(frozen=True)
class _Block:
    """Some queries of some heads of one sentence, and the range of keys that any of them sees.

    Attributes:
        number: of the block among all blocks, visited or not; dropout depends on it.
        queries: index into [B, H, T, …].
        keys: index into [B, H, S, …].
    """

    number: int
    queries: tuple[int, slice, slice]
    keys: tuple[int, slice, slice]


@dataclass(frozen=True)
class _Call:
    """What both directions need besides q (multiplied by its factor), k, v and the key mask."""

    activation: Activation
    bias: Tensor | None
    is_causal: bool
    dropout_p: float
    seed: int
    need_row_stats: bool

    def blocks(self, q: Tensor, k: Tensor, key_mask: Tensor | None) -> Iterator[_Block]:
        """Yield the blocks in which some query sees a key."""
        (B, H, T, _), S = q.shape, k.shape[2]
        block_t = max(1, min(T, BLOCK_WEIGHTS // S))
        block_h = max(1, BLOCK_WEIGHTS // (block_t * S))
        bounds = key_bounds(None if key_mask is None else key_mask.view(torch.uint8))
        ranges = [(0, S)] * B if bounds is None else bounds.tolist()
        number = 0
        for b, (first_key, key_stop) in enumerate(ranges):
            for h in range(0, H, block_h):
                heads = slice(h, h + block_h)
                for start in range(0, T, block_t):
                    stop = min(start + block_t, T)
                    last = min(key_stop, S - T + stop) if self.is_causal else key_stop
                    if first_key < last:
                        yield _Block(number, (b, heads, slice(start, stop)), (b, heads, slice(first_key, last)))
                    number += 1

    def weights(self, q: Tensor, k: Tensor, key_mask: Tensor | None, block: _Block) -> Tensor:
        """Return a block's weights, [heads, queries, keys], 0 where a key is hidden."""
        b, _, queries = block.queries
        keys = block.keys[2]
        weights = torch.bmm(q[block.queries], k[block.keys].mT)
        if self.bias is not None:
            weights += self.bias[b, queries, None]
        weights = weights.relu_() if self.activation == "relu" else weights.sigmoid_()
        if self.is_causal:
            last_seen = k.shape[2] - q.shape[2] + queries.start  # by the block's first query
            start = max(keys.start, last_seen)  # every query of the block sees the keys before
            weights[:, :, start - keys.start :].tril_(last_seen - start)
        if key_mask is not None:
            weights.masked_fill_(~key_mask[b, keys], 0.0)
        return weights

    def dropout_mask(self, weights: Tensor, block: _Block) -> Tensor:
        """Return the factors that dropout multiplies a block's weights by, the same in both directions."""
        generator = torch.Generator().manual_seed(self.seed + block.number)
        mask = torch.empty_like(weights).bernoulli_(1 - self.dropout_p, generator=generator)
        return mask.div_(max(1 - self.dropout_p, torch.finfo(mask.dtype).tiny))

    def grad_scores(self, grad_weights: Tensor, weights: Tensor) -> Tensor:
        """Return the gradient of the scores."""
        operators = torch.ops.aten
        grad_scores: Tensor
        if self.activation == "relu":
            grad_scores = operators.threshold_backward(grad_weights, weights, 0)
        else:
            grad_scores = operators.sigmoid_backward(grad_weights, weights)
        return grad_scores


class _Attend(torch.autograd.Function):
    """(q multiplied by its factor, k, v, key mask, call) → (output, Σ w, Σ w log w)."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, key_mask: Tensor | None, call: _Call
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        ctx.save_for_backward(q, k, v, key_mask)
        ctx.call = call
        output = q.new_zeros(*q.shape[:3], v.shape[3])
        weight_sum, w_log_w = q.new_zeros(q.shape[:3]), q.new_zeros(q.shape[:3])
        for block in call.blocks(q, k, key_mask):
            weights = call.weights(q, k, key_mask, block)
            if call.need_row_stats:
                weight_sum[block.queries] = weights.sum(-1)
                w_log_w[block.queries] = (weights * finite_log(weights)).sum(-1)
            if call.dropout_p:
                weights *= call.dropout_mask(weights, block)
            torch.bmm(weights, v[block.keys], out=output[block.queries])
        return (output, weight_sum, w_log_w) if call.need_row_stats else (output, None, None)

    @staticmethod
    @forbid_double_backward
    @torch.autocast("cpu", enabled=False)  # the backward pass may run inside a caller's autocast block
    def backward(
        ctx: Any, grad_output: Tensor, grad_weight_sum: Tensor, grad_w_log_w: Tensor
    ) -> tuple[Tensor | None, ...]:
        q, k, v, key_mask = ctx.saved_tensors
        call: _Call = ctx.call
        grad_output = grad_output.contiguous()
        grad_q, grad_k, grad_v = (torch.zeros_like(x) for x in (q, k, v))
        for block in call.blocks(q, k, key_mask):
            weights = call.weights(q, k, key_mask, block)
            grad_weights = torch.bmm(grad_output[block.queries], v[block.keys].mT)
            dropped_weights = weights
            if call.dropout_p:
                mask = call.dropout_mask(weights, block)
                grad_weights *= mask
                dropped_weights = weights * mask
            grad_v[block.keys].baddbmm_(dropped_weights.mT, grad_output[block.queries])
            if call.need_row_stats:  # of the weights before dropout; d(w log w)/dw = 1 + log w
                grad_weights += grad_weight_sum[block.queries][..., None]
                grad_weights += finite_log(weights).add_(1.0).mul_(grad_w_log_w[block.queries][..., None])
            grad_scores = call.grad_scores(grad_weights, weights)
            torch.bmm(grad_scores, k[block.keys], out=grad_q[block.queries])
            grad_k[block.keys].baddbmm_(grad_scores.mT, q[block.queries])
        return grad_q, grad_k, grad_v, None, None
