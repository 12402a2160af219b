"""Logs the sparsity, null rate and entropy of attention during training.

Shapes: B batch, H heads, T queries, S keys, R real (not padded) queries.
"""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from fairseq.logging import metrics
from fairseq.tasks import FairseqTask
from torch import Tensor, nn

from relumt.attention import AttentionMask, AttentionOutput, Need
from relumt.attention.metrics.attention_metrics import entropy, is_null_row, real_queries, sparsity
from relumt.errors import UserError
from relumt.plugin.model.attention import MechanismAttention
from relumt.plugin.model.hooks import attention_hook


class AttentionLog:
    """Logs attention_sparsity_SITE, attention_null_rate_SITE and attention_entropy_SITE, means over queries and heads.

    If an update accumulates several batches, every worker logs its first one.

    Args:
        interval: number of updates between two logs; None for no log.
        task: provides the padding indices of its dictionaries.

    Attributes:
        num_updates: set by the model before every batch.

    Raises:
        UserError: an interval below 1.
    """

    def __init__(self, interval: int | None, task: FairseqTask) -> None:
        if interval is not None and interval < 1:
            raise UserError(f"--log-attention-interval must be at least 1, not {interval}; leave it out for no log")
        self.interval = interval
        self.padding_indices = task.source_dictionary.pad(), task.target_dictionary.pad()
        self.num_updates: int | None = None
        self.last_logged: int | None = None

    @contextmanager
    def record(self, model: nn.Module, source: Tensor, prefix: Tensor) -> Iterator[None]:
        """Log what `model` computes inside the block from source [B, S] and target prefix [B, T], if it is due."""
        interval, num_updates = self.interval, self.num_updates
        is_due = interval and num_updates is not None and num_updates % interval == 0
        if not is_due or not model.training or num_updates == self.last_logged:
            yield
            return
        self.last_logged = num_updates
        is_real = real_queries(source, prefix, self.padding_indices)
        values: dict[str, list[Tensor]] = defaultdict(list)

        @torch.no_grad()
        def measure(_: str, attention: MechanismAttention, result: AttentionOutput, mask: AttentionMask) -> None:
            if result.weights is None:
                return
            site, (T, S) = attention.site, result.weights.shape[2:]
            real = is_real[site]
            rows = result.weights.detach().transpose(1, 2)[real]  # [B, H, T, S] -> [B, T, H, S] -> [R, H, S]
            num_visible = mask.count_visible(T, S, rows.device)[:, 0, :, 0].expand_as(real)[real]  # [B, T] -> [R]
            values[f"attention_sparsity_{site}"].append(sparsity(rows, num_visible).mean())
            if not attention.mechanism.has_negative_weights:
                values[f"attention_null_rate_{site}"].append(is_null_row(rows).float().mean())
                values[f"attention_entropy_{site}"].append(entropy(rows).mean())

        with attention_hook(model, measure, Need.WEIGHTS):
            yield
        for name, per_layer in values.items():
            metrics.log_scalar(name, torch.stack(per_layer).mean(), round=4)
