"""Sparsity, null rate and entropy of attention in the log of training. Shapes: B H T S; R query rows, [R, H, S]."""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from fairseq.logging import metrics
from fairseq.tasks import FairseqTask
from torch import Tensor, nn

from relumt.attention import AttentionMask, AttentionOutput, Need
from relumt.errors import UserError
from relumt.metrics.attention_metrics import entropy, null, real_queries, rows_of, sparsity
from relumt.modules.attention import MechanismAttention
from relumt.modules.hooks import attention_hook


class AttentionLog:
    """Logs attention_sparsity_SITE, attention_null_rate_SITE and attention_entropy_SITE, means over rows and heads.

    Of an update made of several batches the first is looked at, on every worker.

    Args:
        interval: number of updates from one look to the next; None for no look at all.
        task: fairseq's, for the padding of its dictionaries.

    Raises:
        UserError: an interval below 1.
    """

    def __init__(self, interval: int | None, task: FairseqTask) -> None:
        if interval is not None and interval < 1:
            raise UserError(f"--log-attention-interval must be 1 or more, not {interval}; leave it out for never")
        self.interval = interval
        self.pads = task.source_dictionary.pad(), task.target_dictionary.pad()
        self.due = False
        self.num_updates: int | None = None
        self.looked_at: int | None = None

    def set_num_updates(self, num_updates: int) -> None:
        """Told before every batch of an update, and when a checkpoint is loaded."""
        due = self.interval is not None and num_updates % self.interval == 0
        self.due = due and num_updates != self.looked_at
        self.num_updates = num_updates

    @contextmanager
    def watching(self, model: nn.Module, source: Tensor, given: Tensor) -> Iterator[None]:
        """Look at what `model` computes inside the block, on tokens [B, S] and [B, T], if it is due."""
        if not self.due or not model.training:
            yield
            return
        self.due, self.looked_at = False, self.num_updates
        real = real_queries(source, given, self.pads)
        found: dict[str, list[Tensor]] = defaultdict(list)

        @torch.no_grad()
        def look(_: str, attention: MechanismAttention, result: AttentionOutput, mask: AttentionMask) -> None:
            if result.weights is None:
                return
            site = attention.site
            rows, seen = rows_of(result.weights.detach(), mask, real[site])
            found[f"attention_sparsity_{site}"].append(sparsity(rows, seen).mean())
            if not attention.mechanism.has_negative_weights:
                found[f"attention_null_rate_{site}"].append(null(rows).float().mean())
                found[f"attention_entropy_{site}"].append(entropy(rows).mean())

        with attention_hook(model, look, Need.WEIGHTS):
            yield
        for name, values in found.items():
            metrics.log_scalar(name, torch.stack(values).mean(), round=4)
