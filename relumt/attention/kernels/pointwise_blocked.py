"""Attention whose weights depend on their own score alone, on a CPU, block by block. Shapes: B H T S D.

What `pointwise` does in Triton, by PyTorch's operators: so few queries at a time that their weights stay in the
processor's cache. A block is done when it is added. The backward pass computes its weights again, dropout and all, so
that nothing of T·S is ever kept; keys in the future of all of a block's queries, and padding before the first real key
and after the last, are not visited.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from relumt.attention.kernels.derivatives import first_only
from relumt.attention.kernels.key_bounds import bounds
from relumt.attention.kernels.pointwise_params import PointwiseParams
from relumt.attention.precision import cast_saturating
from relumt.attention.row_stats import finite_log

PAIRS = 1 << 19
"""Weights of a block: 2 MiB, of which two or three are at work. Of 2¹⁶ to 2¹⁹ the best for two threads; for one, which
would take half of it, nearly so. Not a number of threads, or dropout would depend on it."""


@torch.compiler.disable
def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    rows: PointwiseParams,
    keys: Tensor | None,
    causal: bool,
    dropout: float,
    need_row_stats: bool,
    dtype: torch.dtype,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """As `pointwise.attend`, for heads and values of any size; half precision is computed in float32.

    For first derivatives only, as every kernel here: RELUMT_KERNELS=reference has the others, and torch.func.
    """
    q, k, v = (x.to(rows.factor.dtype) for x in (q, k, v))
    seed = int(torch.randint(2**31 - 1, ())) if dropout else 0
    bias = None if rows.bias is None else rows.bias.expand(q.shape[0], q.shape[2])
    call = _Call(rows.activation, bias, causal, dropout, seed, need_row_stats)
    scaled = q * rows.factor[:, None, :, None]
    mixed, total, w_log_w = _Attend.apply(scaled, k.contiguous(), v.contiguous(), keys, call)
    return cast_saturating(mixed, dtype), total, w_log_w


@dataclass(frozen=True)
class _Block:
    """Some queries of some heads of a sentence, and the keys from the first to the last that one of them sees."""

    index: int
    rows: tuple[int, slice, slice]
    keys: tuple[int, slice, slice]


@dataclass(frozen=True)
class _Call:
    """What both directions need besides q (times its factor), k, v and which keys are real."""

    activation: str
    bias: Tensor | None
    causal: bool
    dropout: float
    seed: int
    need_row_stats: bool

    def blocks(self, q: Tensor, k: Tensor, real: Tensor | None) -> Iterator[_Block]:
        """Those in which a query sees a key."""
        (B, H, T, _), S = q.shape, k.shape[2]
        rows = max(1, min(T, PAIRS // S))
        heads = max(1, PAIRS // (rows * S))
        spans = [(0, S)] * B if real is None else bounds(real.view(torch.uint8)).tolist()
        index = 0
        for b in range(B):
            first, stop = spans[b]
            for h in range(0, H, heads):
                for row in range(0, T, rows):
                    end = min(row + rows, T)
                    last = min(stop, S - T + end) if self.causal else stop
                    if first < last:
                        some = slice(h, h + heads)
                        yield _Block(index, (b, some, slice(row, end)), (b, some, slice(first, last)))
                    index += 1

    def weights(self, q: Tensor, k: Tensor, real: Tensor | None, block: _Block) -> Tensor:
        """φ of a block's scores, [heads, rows, keys], 0 where a key is not visible."""
        b, _, rows = block.rows
        keys = block.keys[2]
        weights = torch.bmm(q[block.rows], k[block.keys].mT)
        if self.bias is not None:
            weights += self.bias[b, rows, None]
        weights = weights.relu_() if self.activation == "relu" else weights.sigmoid_()
        if self.causal:
            seen = k.shape[2] - q.shape[2] + rows.start  # the last key that the first query sees
            start = max(keys.start, seen)
            weights[:, :, start - keys.start :].tril_(seen - start)
        if real is not None:
            weights.masked_fill_(~real[b, keys], 0.0)
        return weights

    def kept(self, weights: Tensor, block: _Block) -> Tensor:
        """What dropout multiplies a block's weights with, the same whenever it is asked."""
        drawn = torch.Generator().manual_seed(self.seed + block.index)
        kept = torch.empty_like(weights).bernoulli_(1 - self.dropout, generator=drawn)
        return kept.div_(max(1 - self.dropout, torch.finfo(kept.dtype).tiny))

    def through(self, grad: Tensor, weights: Tensor) -> Tensor:
        """The gradient of scores, from that of their weights."""
        if self.activation == "relu":
            return torch.ops.aten.threshold_backward(grad, weights, 0)
        return torch.ops.aten.sigmoid_backward(grad, weights)


class _Attend(torch.autograd.Function):
    """q times its factor, k, v, which keys are real and a `_Call` → mixed, Σ w, Σ w log w."""

    @staticmethod
    def forward(
        ctx, q: Tensor, k: Tensor, v: Tensor, real: Tensor | None, call: _Call
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        ctx.save_for_backward(q, k, v, real)
        ctx.call = call
        mixed = q.new_zeros(*q.shape[:3], v.shape[3])
        total, w_log_w = (q.new_zeros(q.shape[:3]) if call.need_row_stats else None for _ in range(2))
        for block in call.blocks(q, k, real):
            weights = call.weights(q, k, real, block)
            if call.need_row_stats:
                total[block.rows] = weights.sum(-1)
                w_log_w[block.rows] = (weights * finite_log(weights)).sum(-1)
            if call.dropout:
                weights *= call.kept(weights, block)
            torch.bmm(weights, v[block.keys], out=mixed[block.rows])
        return mixed, total, w_log_w

    @staticmethod
    @first_only
    @torch.autocast("cpu", enabled=False)
    def backward(ctx, grad: Tensor, grad_total: Tensor | None, grad_w_log_w: Tensor | None) -> tuple:
        q, k, v, real = ctx.saved_tensors
        call, grad = ctx.call, grad.contiguous()
        grad_q, grad_k, grad_v = (torch.zeros_like(x) for x in (q, k, v))
        for block in call.blocks(q, k, real):
            weights = call.weights(q, k, real, block)
            of_weights = torch.bmm(grad[block.rows], v[block.keys].mT)
            mixing = weights
            if call.dropout:
                kept = call.kept(weights, block)
                of_weights *= kept
                mixing = weights * kept
            grad_v[block.keys].baddbmm_(mixing.mT, grad[block.rows])
            if call.need_row_stats:
                log = finite_log(weights)
                of_weights += grad_total[block.rows][..., None]
                of_weights += log.add_(1.0).mul_(grad_w_log_w[block.rows][..., None])
            of_scores = call.through(of_weights, weights)
            torch.bmm(of_scores, k[block.keys], out=grad_q[block.rows])
            grad_k[block.keys].baddbmm_(of_scores.mT, q[block.rows])
        return grad_q, grad_k, grad_v, None, None
