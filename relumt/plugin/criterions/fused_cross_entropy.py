"""`fused_label_smoothed_cross_entropy`: fairseq's `label_smoothed_cross_entropy`, with less time and memory.

The model returns features instead of logits, and `projected_cross_entropy` computes the output projection, the loss and
both gradients in chunks. Loss and gradients are fairseq's up to rounding. Where fairseq needs the logits or the model's
own projection, fairseq computes the loss.

With --cpu-bf16, products of the forward pass run in bf16 on a CPU (autocast), and so do those of the backward pass that
belong to them. Weights, gradients of weights, the residual stream, norms and the loss stay in fp32. fairseq's --bf16
would convert the model itself.
"""

from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from fairseq.criterions import register_criterion
from fairseq.criterions.label_smoothed_cross_entropy import (
    LabelSmoothedCrossEntropyCriterion,
    LabelSmoothedCrossEntropyCriterionConfig,
)
from fairseq.models.transformer import TransformerDecoderBase
from fairseq.tasks import FairseqTask
from torch import Tensor, nn

from relumt.attention import Need
from relumt.errors import UserError
from relumt.plugin.compiled.features import Part, RowSums, compute_features
from relumt.plugin.compiled.losses import Batch, CompiledLosses
from relumt.plugin.criterions.projected_cross_entropy import (
    SmoothedLoss,
    projected_cross_entropy,
    smoothed_cross_entropy,
)
from relumt.plugin.model.plain_linear import is_plain_linear
from relumt.plugin.training_device import CPU_BF16_FLAG, require_fast_bf16


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
        compiled_need: what `further_losses` needs of the mechanisms.
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

    def own_projection(self, model: nn.Module) -> Tensor | None:
        """Return the weight of the output projection, None where fairseq needs the logits or the model's own one."""
        return None if self.ignore_prefix_size or self.report_accuracy else projection_weight(model)

    def can_compile(self, model: nn.Module, reduce: bool) -> bool:
        """Return whether --compile computes a batch: not if hooks observe the model, as when fairseq looks for NaN."""
        return self.compiled_losses is not None and reduce and not model._forward_hooks

    def loss_of_batch(
        self, model: nn.Module, sample: dict[str, Any], reduce: bool
    ) -> tuple[Tensor, int, dict[str, Any]]:
        """Compute what `forward` returns, in the precision of the surrounding context."""
        weight = self.own_projection(model) if reduce else None
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
        loss, log = self.compiled_losses(model, self.batch_to_compute(model, sample))
        return loss, counts["sample_size"], log | counts

    def batch_to_compute(self, model: nn.Module, sample: dict[str, Any]) -> Batch:
        """Return what `compute_losses` and `further_losses` need of a batch."""
        source, prefix = sample["net_input"]["src_tokens"], sample["net_input"]["prev_output_tokens"]
        numbers = torch.tensor(self.numbers(model, self.counts(sample)["sample_size"]), pin_memory=source.is_cuda)
        return Batch(source, prefix, sample["target"], numbers.to(source.device, non_blocking=True))

    def numbers(self, model: nn.Module, sample_size: int) -> list[float]:
        """Return what `compute_losses` needs beside the tokens; the sample size is the last."""
        return [sample_size]

    def compute_losses(self, model: Any, batch: Batch, part: Part) -> dict[str, Tensor]:
        """Return the losses of a batch by name, for `CompiledLosses`.

        Raises:
            UserError: the loss needs the logits, or the model's own projection.
        """
        weight = self.own_projection(model)
        if weight is None:
            raise UserError(
                "--compile needs an output projection without bias, and neither --adaptive-softmax-cutoff, "
                "--ignore-prefix-size nor --report-accuracy; change the flags, or drop --compile"
            )
        features = compute_features(model, batch.src_tokens, batch.prev_output_tokens, self.compiled_need, part)
        arguments = features.output, weight, batch.target, self.eps, self.padding_idx
        loss: SmoothedLoss = part(smoothed_cross_entropy)(*arguments)
        return loss._asdict() | self.further_losses(features.row_sums, loss.loss, model, batch, part)

    def further_losses(
        self, row_sums: dict[str, list[RowSums]], loss: Tensor, model: Any, batch: Batch, part: Part
    ) -> dict[str, Tensor]:
        """Return what else is logged of a batch, and the "loss" that replaces the smoothed one: nothing here."""
        return {}


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
