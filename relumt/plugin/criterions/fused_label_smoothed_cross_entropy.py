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

from relumt.plugin.criterions.projected_cross_entropy import projected_cross_entropy
from relumt.plugin.model.attention import is_plain_linear
from relumt.plugin.training_device import CPU_BF16_FLAG, require_fast_bf16


@dataclass
class FusedLabelSmoothedCrossEntropyConfig(LabelSmoothedCrossEntropyCriterionConfig):
    """Flags of the criterion."""

    cpu_bf16: bool = field(
        default=False,
        metadata={"help": "train on a CPU in bf16 (autocast); weights stay in fp32, unlike with --bf16"},
    )


@register_criterion("fused_label_smoothed_cross_entropy", dataclass=FusedLabelSmoothedCrossEntropyConfig)
class FusedLabelSmoothedCrossEntropy(LabelSmoothedCrossEntropyCriterion):
    """Label-smoothed cross-entropy that never holds the logits of a whole batch."""

    def __init__(self, task: FairseqTask, cfg: FusedLabelSmoothedCrossEntropyConfig) -> None:
        super().__init__(task, cfg.sentence_avg, cfg.label_smoothing, cfg.ignore_prefix_size, cfg.report_accuracy)
        self.cpu_bf16 = cfg.cpu_bf16

    def forward(
        self, model: nn.Module, sample: dict[str, Any], reduce: bool = True
    ) -> tuple[Tensor, int, dict[str, Any]]:
        """Return the loss, the sample size, and values to log that can be summed over batches and workers."""
        if self.cpu_bf16 and model.training:  # any CPU may validate a trained model
            require_fast_bf16(CPU_BF16_FLAG)
        with torch.autocast("cpu", torch.bfloat16) if self.cpu_bf16 else nullcontext():
            return self.loss_of_batch(model, sample, reduce)

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
        sample_size = len(sample["target"]) if self.sentence_avg else sample["ntokens"]
        log = {
            "loss": loss.data,
            "nll_loss": nll.data,
            "ntokens": sample["ntokens"],
            "nsentences": len(sample["target"]),
            "sample_size": sample_size,
        }
        return loss, sample_size, log


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
