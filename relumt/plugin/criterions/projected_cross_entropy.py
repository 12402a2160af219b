"""Label-smoothed cross-entropy from features instead of logits. Shapes: N positions, E, V types.

With logits z = x·Wᵀ, p = softmax(z), target y and smoothing ε (fairseq's definition: the mass ε is spread over the
V − 1 other types), a position contributes

    loss       =  −(1 − ε − ε′) log p_y − ε′ Σ_v log p_v,    ε′ = ε / (V − 1)
    ∂loss/∂z   =  p − ε′ − (1 − ε − ε′) onehot(y)

fairseq stores z, log p and their gradients, each [N, V]. The gradient needs nothing that the forward pass does not
have, so the forward pass computes it, chunk by chunk, in one buffer, and keeps only the gradients of x and W. Padding
is left out before the projection.
"""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from relumt.attention import at_least_float32
from relumt.attention.kernels.double_backward import refuse_double_backward

CHUNK_ELEMENTS = {"cpu": 1 << 21, "cuda": 1 << 25}
"""Device type → number of logits in a chunk: 8 MiB in float32 stay in a CPU's cache, 128 MiB keep a GPU busy."""

MIN_CHUNK_POSITIONS = 256
"""Fewer positions would make the product that gives the gradient of W slow."""

FP16_SCALE = 16.0
"""Factor of gradients while they are in fp16: without it the many small ones of a large vocabulary would vanish, and
with a larger one the sum over the positions of a frequent type could overflow."""
MAX_FP16_POSITIONS = 4096
"""Positions of a chunk in fp16, for the same reason."""


class SmoothedLoss(NamedTuple):
    """Sums over positions, in nats: the smoothed loss, and −log p_y, which has no gradient."""

    loss: Tensor
    nll_loss: Tensor


def projected_cross_entropy(
    features: Tensor, weight: Tensor, target: Tensor, smoothing: float, ignore_index: int
) -> SmoothedLoss:
    """Return the label-smoothed cross-entropy of `features @ weight.T`, summed over positions.

    Under `torch.no_grad` no gradients are computed. Under autocast the products run in its precision. All else is
    computed in float32, in float64 for float64 features.

    Args:
        features: decoder output [N, E].
        weight: output projection [V, E], with V > 1.
        target: [N] int64, indices of types.
        smoothing: ε, in [0, 1].
        ignore_index: positions with this target contribute nothing.
    """
    if not torch.is_grad_enabled():  # validation: otherwise autograd would report that parameters need gradients
        features, weight = features.detach(), weight.detach()
    return SmoothedLoss(*_ProjectedCrossEntropy.apply(features, weight, target, smoothing, ignore_index))


def smoothed_cross_entropy(
    features: Tensor, weight: Tensor, target: Tensor, smoothing: float, ignore_index: int
) -> SmoothedLoss:
    """Compute `projected_cross_entropy` with all logits at once, to be compiled; features [B, T, E], target [B, T]."""
    V = len(weight)
    spread = smoothing / (V - 1)
    logits = at_least_float32(F.linear(features, weight))  # [B, T, V]
    log_total = logits.logsumexp(-1)
    nll = log_total - logits.gather(-1, target[..., None]).squeeze(-1)
    loss = (1 - smoothing - spread) * nll + spread * (V * log_total - logits.sum(-1))
    ignored = target.eq(ignore_index)
    return SmoothedLoss(loss.masked_fill(ignored, 0.0).sum(), nll.detach().masked_fill(ignored, 0.0).sum())


class _ProjectedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, features: Tensor, weight: Tensor, target: Tensor, smoothing: float, ignore_index: int
    ) -> tuple[Tensor, Tensor]:
        device = features.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else features.dtype
        with torch.autocast(device, enabled=False):
            positions = target.ne(ignore_index).nonzero().squeeze(1)  # [N] -> real positions [R]
            inputs = features.index_select(0, positions).to(dtype)  # [R, E]
            sums = _ChunkedSums(inputs, weight.to(dtype), target[positions], smoothing, ctx.needs_input_grad[:2])
        ctx.scale = sums.scale
        ctx.shape = features.shape
        ctx.dtypes = features.dtype, weight.dtype
        ctx.save_for_backward(positions, sums.inputs_grad, sums.weight_grad)
        ctx.mark_non_differentiable(sums.nll)
        return sums.loss, sums.nll

    @staticmethod
    def backward(ctx: Any, loss_grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        refuse_double_backward("the fused loss", "use --criterion label_smoothed_cross_entropy")
        positions, inputs_grad, weight_grad = ctx.saved_tensors
        features_dtype, weight_dtype = ctx.dtypes
        factor = loss_grad / ctx.scale
        features_grad = None
        if inputs_grad is not None:
            features_grad = inputs_grad.new_zeros(ctx.shape, dtype=features_dtype)
            features_grad.index_copy_(0, positions, (inputs_grad * factor).to(features_dtype))  # [R, E] -> [N, E]
        if weight_grad is not None:
            weight_grad = (weight_grad * factor).to(weight_dtype)
        return features_grad, weight_grad, None, None, None


class _ChunkedSums:
    """The loss and its gradients, computed chunk by chunk.

    Attributes:
        loss, nll: as in `SmoothedLoss`.
        inputs_grad: gradient [R, E] times `scale`, None unless needed.
        weight_grad: gradient [V, E] times `scale`, None unless needed.
        scale: FP16_SCALE for inputs in fp16, else 1.
    """

    def __init__(
        self, inputs: Tensor, weight: Tensor, target: Tensor, smoothing: float, needs_grad: tuple[bool, bool]
    ) -> None:
        """Compute everything for inputs [R, E], weight [V, E] of the same dtype, and target [R]."""
        V = len(weight)
        exact = torch.float64 if inputs.dtype == torch.float64 else torch.float32
        self.weight = weight
        self.spread = smoothing / (V - 1)
        self.peak = 1 - smoothing - self.spread
        self.scale = FP16_SCALE if inputs.dtype == torch.float16 else 1.0
        self.loss = inputs.new_zeros((), dtype=exact)
        self.nll = torch.zeros_like(self.loss)
        needs_inputs_grad, needs_weight_grad = needs_grad
        self.inputs_grad = torch.empty_like(inputs, dtype=exact) if needs_inputs_grad else None
        self.weight_grad = torch.zeros_like(weight, dtype=exact) if needs_weight_grad else None
        chunk = max(MIN_CHUNK_POSITIONS, CHUNK_ELEMENTS.get(inputs.device.type, CHUNK_ELEMENTS["cpu"]) // V)
        if self.scale != 1:
            chunk = min(chunk, MAX_FP16_POSITIONS)
        buffer = inputs.new_empty(min(chunk, len(inputs)), V)
        for start in range(0, len(inputs), chunk):
            rows = slice(start, start + chunk)
            self._add_chunk(rows, inputs[rows], target[rows, None], buffer)

    def _add_chunk(self, rows: slice, inputs: Tensor, target: Tensor, buffer: Tensor) -> None:
        """Add what inputs [C, E] with targets [C, 1] contribute; `buffer` has room for their logits."""
        logits = torch.mm(inputs, self.weight.T, out=buffer[: len(inputs)]).to(self.loss.dtype)  # [C, V]
        peak_logit, sum_logit = logits.gather(1, target), logits.sum(1, keepdim=True)  # [C, 1]
        max_logit = logits.amax(1, keepdim=True)
        exponentials = logits.sub_(max_logit).exp_()  # [C, V]
        total = exponentials.sum(1, keepdim=True)
        log_total = total.log() + max_logit
        nll = (log_total - peak_logit).sum()
        self.nll += nll
        self.loss += self.peak * nll + self.spread * (len(self.weight) * log_total - sum_logit).sum()
        if self.inputs_grad is None and self.weight_grad is None:
            return
        grad = exponentials.mul_(self.scale / total).sub_(self.scale * self.spread)  # [C, V]
        grad.scatter_add_(1, target, torch.full_like(total, -self.scale * self.peak))
        grad = grad.to(inputs.dtype)
        if self.inputs_grad is not None:
            self.inputs_grad[rows] = grad @ self.weight
        if self.weight_grad is not None and grad.dtype == self.weight_grad.dtype:
            self.weight_grad.addmm_(grad.T, inputs)
        elif self.weight_grad is not None:  # half precision: its products [V, C] @ [C, E] are summed in float32
            self.weight_grad += grad.T @ inputs
