"""Criteria for tests, built from their flags."""

from relumt.plugin.criterions.attention_regularization import AttentionRegularization, AttentionRegularizationConfig
from tests.plugin.model.build import task


def regularized_criterion(**flags) -> AttentionRegularization:
    """Return the criterion with the attention regularizer; `flags` are fields of its configuration."""
    return AttentionRegularization(
        task(), AttentionRegularizationConfig(sentence_avg=False, label_smoothing=0.1, **flags)
    )
