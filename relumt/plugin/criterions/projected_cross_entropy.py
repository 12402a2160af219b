"""`fused_label_smoothed_cross_entropy`: fairseq's `label_smoothed_cross_entropy`, with less time and memory.

The model returns features instead of logits, and `projected_cross_entropy` computes the output projection, the loss and
both gradients in chunks. Loss and gradients are fairseq's up to rounding. Where fairseq needs the logits or the model's
own projection, fairseq computes the loss.

With --cpu-bf16, products of the forward pass run in bf16 on a CPU (autocast), and so do those of the backward pass that
belong to them. Weights, gradients of weights, the residual stream, norms and the loss stay in fp32. fairseq's --bf16
would convert the model itself.

Shapes: N positions, E, V types.

With logits z = x·Wᵀ, p = softmax(z), target y and smoothing ε (fairseq's definition: the mass ε is spread over the
V − 1 other types), a position contributes

    loss       =  −(1 − ε − ε′) log p_y − ε′ Σ_v log p_v,    ε′ = ε / (V − 1)
    ∂loss/∂z   =  p − ε′ − (1 − ε − ε′) onehot(y)

fairseq stores z, log p and their gradients, each [N, V]. The gradient needs nothing that the forward pass does not
have, so the forward pass computes it, chunk by chunk, in one buffer, and keeps only the gradients of x and W. Padding
is left out before the projection.
"""

from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from fairseq.criterions import register_criterion
from fairseq.criterions.label_smoothed_cross_entropy import (
    LabelSmoothedCrossEntropyCriterion,
    LabelSmoothedCrossEntropyCriterionConfig,
)
from fairseq.models.transformer import TransformerDecoderBase
from fairseq.tasks import FairseqTask
from torch import Tensor, nn

from relumt.attention import Need, at_least_float32
from relumt.attention.kernels.double_backward import refuse_double_backward
from relumt.errors import UserError
from relumt.plugin.compiled.features import Features, Part, compute_features
from relumt.plugin.compiled.losses import Batch, CompiledLosses
from relumt.plugin.model.attention import is_plain_linear
from relumt.plugin.training_device import CPU_BF16_FLAG, require_fast_bf16

CHUNK_ELEMENTS = {"cpu": 1 << 21, "cuda": 1 << 25}
"""Device type → number of logits in a chunk: 8 MiB in float32 stay in a CPU's cache, 128 MiB keep a GPU busy."""

MIN_CHUNK_POSITIONS = 256
"""Fewer positions would make the product that gives the gradient of W slow."""

FP16_SCALE = 16.0
"""Factor of gradients while they are in fp16: without it the many small ones of a large vocabulary would vanish, and
with a larger one the sum over the positions of a frequent type could overflow."""


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


@dataclass
class FusedLabelSmoothedCrossEntropyConfig(LabelSmoothedCrossEntropyCriterionConfig):
    """Flags of the criterion."""

    cpu_bf16: bool = field(
        default=False, metadata={"help": "train on a CPU in bf16 (autocast); weights stay in fp32, unlike with --bf16"}
    )
    compile: bool = field(
        default=False, metadata={"help": "compile the model and the loss; on a GPU, with CUDA graphs"}
    )


@register_criterion("fused_label_smoothed_cross_entropy", dataclass=FusedLabelSmoothedCrossEntropyConfig)
class FusedLabelSmoothedCrossEntropy(LabelSmoothedCrossEntropyCriterion):
    """Label-smoothed cross-entropy that never holds the logits of a whole batch, unless it is compiled.

    Attributes:
        compiled_need: what `losses_of` needs of the mechanisms.
    """

    compiled_need = Need.NOTHING

    def __init__(self, task: FairseqTask, cfg: FusedLabelSmoothedCrossEntropyConfig) -> None:
        super().__init__(task, cfg.sentence_avg, cfg.label_smoothing, cfg.ignore_prefix_size, cfg.report_accuracy)
        self.cpu_bf16 = cfg.cpu_bf16
        pads = task.source_dictionary.pad(), self.padding_idx
        self.compiled_losses = CompiledLosses(self.compute_losses, pads) if cfg.compile else None

    def forward(
        self, model: nn.Module, sample: dict[str, Any], reduce: bool = True
    ) -> tuple[Tensor, int, dict[str, Any]]:
        """Return the loss, the sample size, and values to log that can be summed over batches and workers."""
        if self.cpu_bf16 and model.training:  # any CPU may validate a trained model
            require_fast_bf16(CPU_BF16_FLAG)
        with torch.autocast("cpu", torch.bfloat16) if self.cpu_bf16 else nullcontext():
            if self.can_compile(model, reduce):
                return self.compiled_loss_of_batch(model, sample)
            return self.loss_of_batch(model, sample, reduce)

    def can_compile(self, model: nn.Module, reduce: bool) -> bool:
        """Return whether --compile computes a batch: not if hooks observe the model, as when fairseq looks for NaN."""
        return self.compiled_losses is not None and reduce and not model._forward_hooks

    def loss_of_batch(
        self, model: nn.Module, sample: dict[str, Any], reduce: bool
    ) -> tuple[Tensor, int, dict[str, Any]]:
        """Compute what `forward` returns, in the precision of the surrounding context."""
        weight = None if self.ignore_prefix_size or self.report_accuracy or not reduce else projection_weight(model)
        if weight is None:
            result: tuple[Tensor, int, dict[str, Any]] = super().forward(model, sample, reduce)
            return result
        features, _ = model(**sample["net_input"], features_only=True)
        # [B, T, E] -> [B·T, E]
        loss, nll = projected_cross_entropy(
            features.flatten(0, 1), weight, sample["target"].flatten(), self.eps, self.padding_idx
        )
        counts = self.counts(sample)
        return loss, counts["sample_size"], {"loss": loss.data, "nll_loss": nll.data} | counts

    def counts(self, sample: dict[str, Any]) -> dict[str, int]:
        """Return the sizes of a batch that are logged beside its losses."""
        nsentences, ntokens = len(sample["target"]), sample["ntokens"]
        sample_size = nsentences if self.sentence_avg else ntokens
        return {"ntokens": ntokens, "nsentences": nsentences, "sample_size": sample_size}

    def compiled_loss_of_batch(self, model: nn.Module, sample: dict[str, Any]) -> tuple[Tensor, int, dict[str, Any]]:
        """Compute what `loss_of_batch` returns, with --compile."""
        assert self.compiled_losses is not None
        counts = self.counts(sample)
        source, prefix = sample["net_input"]["src_tokens"], sample["net_input"]["prev_output_tokens"]
        numbers = torch.tensor(self.numbers(model, counts["sample_size"]), pin_memory=source.is_cuda)
        batch = Batch(source, prefix, sample["target"], numbers.to(source.device, non_blocking=True))
        loss, log = self.compiled_losses(model, batch)
        return loss, counts["sample_size"], log | counts

    def numbers(self, model: nn.Module, sample_size: int) -> list[float]:
        """Return what `compute_losses` needs beside the tokens; the sample size is the last."""
        return [sample_size]

    def compute_losses(self, model: Any, batch: Batch, part: Part) -> dict[str, Tensor]:
        """Return the losses of a batch by name, for `CompiledLosses`.

        Raises:
            UserError: the loss needs the logits, or the model's own projection.
        """
        if self.ignore_prefix_size or self.report_accuracy or projection_weight(model) is None:
            raise UserError(
                "--compile needs an output projection without bias, and neither --adaptive-softmax-cutoff, "
                "--ignore-prefix-size nor --report-accuracy; change the flags, or drop --compile"
            )
        features = compute_features(model, batch.src_tokens, batch.prev_output_tokens, self.compiled_need, part)
        return self.losses_of(features, model, batch, part)

    def losses_of(self, features: Features, model: Any, batch: Batch, part: Part) -> dict[str, Tensor]:
        """Return the losses of a batch, given its features."""
        arguments = features.output, projection_weight(model), batch.target, self.eps, self.padding_idx
        loss: SmoothedLoss = part(smoothed_cross_entropy)(*arguments)
        return loss._asdict()


def projection_weight(model: nn.Module) -> Tensor | None:
    """Return the weight [V, E] that turns the decoder's features into logits, None if it must not be used directly.

    It must not if it has a bias, hooks, quantization or an adaptive softmax, if a subclass computes logits in its own
    way, if its shards are gathered by the model's forward pass only, or if DistributedDataParallel looks for unused
    parameters, which would take it for one.
    """
    if any(
        type(module).__name__ == "FullyShardedDataParallel" or getattr(module, "find_unused_parameters", False)
        for module in model.modules()
    ):
        return None
    decoder = getattr(model, "decoder", None)
    projection = getattr(decoder, "output_projection", None)
    has_adaptive_softmax = getattr(decoder, "adaptive_softmax", None) is not None
    if not is_plain_linear(projection) or projection.bias is not None or has_adaptive_softmax:
        return None
    if getattr(type(decoder), "output_layer", None) is not TransformerDecoderBase.output_layer:
        return None
    return projection.weight
