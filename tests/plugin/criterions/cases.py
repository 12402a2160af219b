"""Criteria for tests, built from their flags."""

from relumt.plugin.criterions.attention_regularization import AttentionRegularization, AttentionRegularizationConfig
from relumt.plugin.criterions.fused_cross_entropy import (
    FusedLabelSmoothedCrossEntropy,
    FusedLabelSmoothedCrossEntropyConfig,
)
from tests.plugin.model.build import task


def regularized_criterion(**flags) -> AttentionRegularization:
    """Return the criterion with the attention regularizer; `flags` are fields of its configuration."""
    return AttentionRegularization(
        task(), AttentionRegularizationConfig(sentence_avg=False, label_smoothing=0.1, **flags)
    )


def fused_criterion(sentence_avg=False, **flags) -> FusedLabelSmoothedCrossEntropy:
    """Return the criterion without the regularizer."""
    return FusedLabelSmoothedCrossEntropy(
        task(), FusedLabelSmoothedCrossEntropyConfig(sentence_avg=sentence_avg, label_smoothing=0.1, **flags)
    )
