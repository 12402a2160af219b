"""Attention with pointwise weights on a CPU, in blocks. Shapes: B batch, H heads, T queries, S keys, D head size.

The same function as `pointwise_triton`, with PyTorch operators, on so few queries and keys at a time that their weights
stay in the processor's cache. All products write into buffers that the blocks share. The backward pass computes each
block's weights again, with the same dropout, so no T×S tensor is ever kept. Keys in the future of all queries of a
block are skipped, and so is padding at either end of a sentence.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from relumt.attention.dropout import LEVELS, dropout_noise
from relumt.attention.kernels import pointwise_operator
from relumt.attention.kernels.pointwise_params import Activation, PointwiseParams, exponent
from relumt.attention.mask import AttentionMask
from relumt.attention.precision import cast_saturating

BLOCK_WEIGHTS = 1 << 19
"""Weights per block, 2 MiB. It is constant because dropout depends on the blocks."""

BLOCK_KEYS = 256
"""Keys per block. Blocks with many queries and few keys have the fastest products, above all those with transposed
weights in the backward pass; with fewer keys all products are slower."""


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    params: PointwiseParams,
    key_mask: Tensor | None,
    is_causal: bool,
    dropout_p: float,
    row_sums: int,
    dtype: torch.dtype,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Compute the same as `pointwise_operator.attend`, for heads and values of any size.

    Half precision is computed in float32. Second derivatives and `torch.func` need RELUMT_KERNELS=reference.
    """
    q, k, v = (x.to(params.factor.dtype) for x in (q, k, v))
    k, v = map(AttentionMask(key_mask).zero_padding, (k, v))
    output, weight_sum, w_log_w = pointwise_operator.attend(
        q, k, v, params, key_mask, is_causal, dropout_p, row_sums, q.dtype, "pointwise_blocked"
    )
    return cast_saturating(output, dtype), weight_sum, w_log_w


def new_outputs(q: Tensor, v: Tensor, row_sums: int, dtype: torch.dtype) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Return outputs of 0, the row sums if they are needed."""
    weight_sum, w_log_w = (q.new_zeros(q.shape[:3]) if row_sums > i else None for i in range(2))
    return q.new_zeros(*q.shape[:3], v.shape[3]), weight_sum, w_log_w


def new_gradients(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return gradients of 0."""
    grad_q, grad_k, grad_v = (torch.zeros_like(x, memory_format=torch.contiguous_format) for x in (q, k, v))
    return grad_q, grad_k, grad_v


@dataclass(frozen=True)
class _Block:
    """Some queries and keys of some heads of one sentence; some of the queries see some of the keys.

    Attributes:
        number: position of the block among all blocks, visited or not; dropout depends on it.
        num_seen: how many of the block's keys causality lets the first query see; each query sees one more than the
            query before, until it sees all.
        queries: index into [B, H, T, …].
        keys: index into [B, H, S, …].
    """

    number: int
    num_seen: int
    queries: tuple[int, slice, slice]
    keys: tuple[int, slice, slice]


class _Call:
    """What both directions need besides q, k, v and the key mask."""

    def __init__(
        self, activation: Activation, factor: Tensor, bias: Tensor | None, is_causal: bool, dropout_p: float,
        seed: Tensor | None,
    ) -> None:  # fmt: skip
        self.activation, self.factor, self.bias, self.is_causal = activation, factor, bias, is_causal
        self.exponent = exponent(activation)
        self.dropped_levels = round(dropout_p * LEVELS)
        self.seed = 0 if seed is None else int(seed)

    def buffers(self, q: Tensor, k: Tensor, count: int) -> list[Tensor]:
        """Return a buffer for the queries of one block, and `count` for its weights."""
        H, T, D = q.shape[1:]
        block_h, block_t, block_s = self.block_sizes(T, k.shape[2])
        num_rows = min(block_h, H) * block_t
        return [q.new_empty(num_rows * D), *(q.new_empty(num_rows * block_s) for _ in range(count))]

    def block_sizes(self, T: int, S: int) -> tuple[int, int, int]:
        """Return how many heads, queries and keys a block has."""
        block_s = min(S, BLOCK_KEYS, math.isqrt(BLOCK_WEIGHTS))
        block_t = min(T, BLOCK_WEIGHTS // block_s)
        return BLOCK_WEIGHTS // (block_t * block_s), block_t, block_s

    def blocks(self, q: Tensor, k: Tensor, bounds: Tensor | None) -> Iterator[_Block]:
        """Yield the blocks, without keys that none of their queries sees and queries that see none of their keys."""
        (B, H, T, _), S = q.shape, k.shape[2]
        block_h, block_t, block_s = self.block_sizes(T, S)
        ranges = [(0, S)] * B if bounds is None else bounds.tolist()
        number = 0
        for b, (first_key, key_stop) in enumerate(ranges):
            for h in range(0, H, block_h):
                heads = slice(h, h + block_h)
                for t in range(0, T, block_t):
                    stop = min(t + block_t, T)
                    last = min(key_stop, S - T + stop) if self.is_causal else key_stop
                    for s in range(0, S, block_s):
                        keys = slice(max(first_key, s), min(last, s + block_s))
                        if keys.start < keys.stop:
                            num_keys = keys.stop - keys.start
                            start = max(t, keys.start - (S - T)) if self.is_causal else t  # sees the first key
                            num_seen = min(S - T + start + 1 - keys.start, num_keys) if self.is_causal else num_keys
                            yield _Block(number, num_seen, (b, heads, slice(start, stop)), (b, heads, keys))
                        number += 1

    def scaled_queries(self, q: Tensor, block: _Block, buffer: Tensor) -> Tensor:
        """Return a block's queries times their factors, [heads, queries, D], in `buffer`."""
        block_q = q[block.queries]
        return torch.mul(block_q, _rows(self.factor, block), out=_view(buffer, block_q.shape))

    def bases(self, scaled_q: Tensor, k: Tensor, key_mask: Tensor | None, block: _Block, buffer: Tensor) -> Tensor:
        """Return a block's weights before they are raised to a power, 0 where a key is hidden, in `buffer`.

        [heads, queries, keys]
        """
        block_k = k[block.keys]
        weights = torch.bmm(scaled_q, block_k.mT, out=_view(buffer, (*scaled_q.shape[:2], block_k.shape[1])))
        if self.bias is not None:
            weights += _rows(self.bias, block)
        weights = weights.sigmoid_() if self.activation == "sigmoid" else weights.relu_()
        num_keys = weights.shape[2]
        if block.num_seen < num_keys:
            weights[:, : num_keys - block.num_seen].tril_(block.num_seen - 1)
        if key_mask is not None and (self.activation == "sigmoid" or self.bias is not None):
            b, _, keys = block.keys
            weights *= key_mask[b, keys]  # ReLU gives padding, whose keys are 0, no weight anyway
        return weights

    def dropout_noise(self, weights: Tensor, block: _Block) -> Tensor:
        """Return the factors that dropout multiplies a block's weights by, the same in both directions."""
        if self.dropped_levels == LEVELS:
            return torch.zeros_like(weights)
        generator = torch.Generator().manual_seed(self.seed + block.number)
        return dropout_noise(weights, self.dropped_levels, generator)

    def grad_scores_(self, grad_weights: Tensor, weights: Tensor, slope: Tensor | None) -> Tensor:
        """Overwrite the gradient of the weights by that of the scores, and return it.

        slope: of a power r^n of ReLU, r^(n - 1), and the gradient is to be multiplied by n; None without power.
        """
        operators = torch.ops.aten
        if slope is not None:
            grad_weights *= slope
        elif self.activation == "relu":
            operators.threshold_backward.grad_input(grad_weights, weights, 0, grad_input=grad_weights)
        else:
            operators.sigmoid_backward.grad_input(grad_weights, weights, grad_input=grad_weights)
        return grad_weights


def _view(buffer: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return the beginning of a one-dimensional buffer as a tensor of this shape."""
    return buffer[: math.prod(shape)].view(shape)


def _rows(x: Tensor, block: _Block) -> Tensor:
    """Return the values of a block's queries, [queries or 1, 1], out of x [B or 1, T or 1]."""
    b, _, queries = block.queries
    sentence_rows = x[b if x.shape[0] > 1 else 0]
    return (sentence_rows[queries] if x.shape[1] > 1 else sentence_rows)[:, None]


def _power(x: Tensor, n: int, buffer: Tensor) -> Tensor:
    """Return x to a power of at least 1 in `buffer`, by products, because pow takes ten times as long."""
    result = _view(buffer, x.shape).copy_(x)
    for bit in f"{n:b}"[1:]:
        result.square_()
        if bit == "1":
            result *= x
    return result


def _log(weights: Tensor, buffer: Tensor) -> Tensor:
    """Return `row_stats.finite_log(weights)` in `buffer`."""
    return torch.add(weights, torch.finfo(weights.dtype).tiny, out=_view(buffer, weights.shape)).log_()


def run_forward(
    q: Tensor, k: Tensor, v: Tensor, factor: Tensor, bias: Tensor | None, key_mask: Tensor | None,
    key_bounds: Tensor | None, seed: Tensor | None, activation: Activation, is_causal: bool, dropout_p: float,
    row_sums: int, dtype: torch.dtype,
) -> tuple[Tensor, Tensor | None, Tensor | None]:  # fmt: skip
    """Compute the same as `pointwise_triton.run_forward`; keys and values at padding are 0, and all types `dtype`."""
    call = _Call(activation, factor, bias, is_causal, dropout_p, seed)
    output, weight_sum, w_log_w = new_outputs(q, v, row_sums, dtype)
    q_buffer, *buffers = call.buffers(q, k, 1 + (row_sums == 2) + (call.exponent > 1))
    for block in call.blocks(q, k, key_bounds):
        bases = call.bases(call.scaled_queries(q, block, q_buffer), k, key_mask, block, buffers[0])
        weights = bases if call.exponent == 1 else _power(bases, call.exponent, buffers[-1])
        if weight_sum is not None:
            weight_sum[block.queries] += weights.sum(-1)
        if w_log_w is not None:
            w_log_w[block.queries] += torch.linalg.vecdot(weights, _log(weights, buffers[1]))
        if call.dropped_levels:
            weights *= call.dropout_noise(weights, block)
        output[block.queries].baddbmm_(weights, v[block.keys])
    return output, weight_sum, w_log_w


@torch.autocast("cpu", enabled=False)  # the backward pass may run inside a caller's autocast block
def run_backward(
    grad_output: Tensor, grad_weight_sum: Tensor | None, grad_w_log_w: Tensor | None, q: Tensor, k: Tensor, v: Tensor,
    factor: Tensor, bias: Tensor | None, key_mask: Tensor | None, key_bounds: Tensor | None, seed: Tensor | None,
    activation: Activation, is_causal: bool, dropout_p: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Compute the same as `pointwise_triton.run_backward`."""
    row_sums = sum(x is not None for x in (grad_weight_sum, grad_w_log_w))
    call = _Call(activation, factor, bias, is_causal, dropout_p, seed)
    grad_output = grad_output.contiguous()
    grad_q, grad_k, grad_v = new_gradients(q, k, v)
    needs_third = row_sums == 2 or call.dropped_levels > 0
    q_buffer, *buffers = call.buffers(q, k, 2 + needs_third + (call.exponent > 1))
    for block in call.blocks(q, k, key_bounds):
        scaled_q, block_grad = call.scaled_queries(q, block, q_buffer), grad_output[block.queries]
        weights, slope = call.bases(scaled_q, k, key_mask, block, buffers[0]), None
        if call.exponent > 1:
            slope = _power(weights, call.exponent - 1, buffers[-1])
            weights *= slope
        grad_weights = torch.bmm(block_grad, v[block.keys].mT, out=_view(buffers[1], weights.shape))
        dropped_weights = weights
        if call.dropped_levels:
            noise = call.dropout_noise(weights, block)
            grad_weights *= noise
            dropped_weights = torch.mul(weights, noise, out=_view(buffers[2], weights.shape))
        grad_v[block.keys].baddbmm_(dropped_weights.mT, block_grad)
        if grad_weight_sum is not None:  # of the weights before dropout
            grad_weights += grad_weight_sum[block.queries][..., None]
        if grad_w_log_w is not None:  # d(w log w)/dw = 1 + log w
            grad_log = grad_w_log_w[block.queries][..., None]
            grad_weights.add_(grad_log).addcmul_(_log(weights, buffers[2]), grad_log)
        grad_scores = call.grad_scores_(grad_weights, weights, slope)
        grad_q[block.queries].baddbmm_(grad_scores, k[block.keys])
        grad_k[block.keys].baddbmm_(grad_scores.mT, scaled_q)
    return grad_q.mul_(factor[:, None, :, None] * call.exponent), grad_k.mul_(call.exponent), grad_v
