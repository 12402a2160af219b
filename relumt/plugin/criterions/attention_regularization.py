"""`label_smoothed_cross_entropy_with_attention_regularization`: fairseq's loss plus the penalty of [RF] Eq. 7.

The penalty is a mean over attention rows. It is multiplied by the sample size, by which fairseq later divides the loss,
so its weight does not depend on the batch size, the number of accumulated batches, or the number of workers.

    L = λ₁·f(log Σ_j s_ij) + λ₂·max(H(p_i) − C_i, 0),    p_i = s_i/Σ_j s_ij,    C_i = c·log n_i,  c = 0.7

The first term pulls the sum of each row toward 1, the second its entropy below a bound. In the paper f(x) = |x|; the
printed equation lacks the bars, but the text has them. `regularizer_terms.py` says what the terms are means of.

λ₁ and λ₂ are constant in the paper; `linear_weight` changes them linearly to a final value during training.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, Optional

import torch
from fairseq.criterions import register_criterion
from fairseq.dataclass import ChoiceEnum
from fairseq.logging import metrics
from fairseq.tasks import FairseqTask
from torch import Tensor, nn

from relumt.attention import AttentionMask, AttentionOutput, Need, RowStats
from relumt.attention.metrics.attention_metrics import real_queries
from relumt.attention.variant_spec import flag_name
from relumt.errors import UserError
from relumt.plugin.compiled.features import Part, RowSums
from relumt.plugin.compiled.losses import Batch
from relumt.plugin.criterions.fused_cross_entropy import (
    FusedLabelSmoothedCrossEntropy,
    FusedLabelSmoothedCrossEntropyConfig,
)
from relumt.plugin.criterions.regularizer_terms import NORM_PENALTIES, RegularizerTerms
from relumt.plugin.model.attention import MechanismAttention
from relumt.plugin.model.hooks import attention_hook, named_attentions
from relumt.plugin.options import SITES


def linear_weight(initial: float, final: float | None, num_updates: int, last_update: int) -> float:
    """Return the weight after `num_updates`: linear from `initial` to `final` at `last_update`, then constant."""
    return initial if final is None else initial + (final - initial) * min(num_updates / last_update, 1.0)


DEFAULT_MARGIN = 0.5
"""Margin of the hinge: row sums between e^-0.5 = 0.61 and e^0.5 = 1.65 are not penalized."""

MAX_WEIGHT = 1e6
"""The largest λ; far beyond it float32 overflows."""

LOG_NAMES = {"norm": "norm_reg", "entropy_excess": "entropy_reg", "entropy": "entropy", "null_rate": "null_rate"}
"""Field of RegularizerTerms → its name in the log; means over one site have the suffix _SITE."""

SAMPLE_SIZE = "attention_sample_size"
"""Name in the log of the sample size by which these values are multiplied; it takes the same suffixes."""


@dataclass
class AttentionRegularizationConfig(FusedLabelSmoothedCrossEntropyConfig):
    """Flags of the criterion; the weights are λ₁ and λ₂ of [RF] Eq. 7, whose values the paper does not report."""

    attention_norm_weight: float = field(default=0.1, metadata={"help": "λ₁, weight of f(log Σ_j s_ij)"})
    attention_norm_penalty: ChoiceEnum(NORM_PENALTIES) = field(  # type: ignore[valid-type]
        default="abs", metadata={"help": "f: |x| as in the paper, x², or max(|x| − margin, 0)"}
    )
    attention_norm_margin: float = field(
        default=DEFAULT_MARGIN, metadata={"help": "margin of --attention-norm-penalty hinge"}
    )
    attention_norm_final_weight: Optional[float] = field(  # noqa: UP045  fairseq does not know float | None
        default=None, metadata={"help": "λ₁ from --attention-schedule-updates on (default: constant)"}
    )
    attention_entropy_weight: float = field(default=0.1, metadata={"help": "λ₂, weight of max(H(p_i) − C_i, 0)"})
    attention_entropy_bound: float = field(default=0.7, metadata={"help": "c of the bound C_i = c·log n_i"})
    attention_entropy_final_weight: Optional[float] = field(  # noqa: UP045
        default=None, metadata={"help": "λ₂ from --attention-schedule-updates on (default: constant)"}
    )
    attention_schedule_updates: int = field(
        default=0, metadata={"help": "updates until λ₁ and λ₂, which change linearly, have their final values"}
    )


@register_criterion(
    "label_smoothed_cross_entropy_with_attention_regularization", dataclass=AttentionRegularizationConfig
)
class AttentionRegularization(FusedLabelSmoothedCrossEntropy):
    """Label-smoothed cross-entropy plus, in training, λ₁·norm_reg + λ₂·entropy_reg of the attention rows."""

    def __init__(self, task: FairseqTask, cfg: AttentionRegularizationConfig) -> None:
        super().__init__(task, cfg)
        check_config(cfg)
        self.cfg = cfg
        penalty, margin = NORM_PENALTIES[str(cfg.attention_norm_penalty)], float(cfg.attention_norm_margin)
        self.norm_penalty = lambda x: penalty(x, margin)
        self.entropy_bound = float(cfg.attention_entropy_bound)
        self.source_padding_idx = task.source_dictionary.pad()

    compiled_need = Need.ROW_STATS

    def forward(
        self, model: nn.Module, sample: dict[str, Any], reduce: bool = True
    ) -> tuple[Tensor, int, dict[str, Any]]:
        """Return the loss, the sample size, and values to log that can be summed over batches and workers."""
        if self.can_compile(model, reduce):
            return super().forward(model, sample, reduce)
        row_sums: dict[str, list[RowSums]] = defaultdict(list)

        def collect(_: str, attention: MechanismAttention, result: AttentionOutput, mask: AttentionMask) -> None:
            if (rows := result.row_stats) is not None:
                row_sums[attention.site].append((rows.weight_sum, rows.weight_log_weight_sum, rows.num_keys))

        with attention_hook(model, collect):
            loss, sample_size, log = super().forward(model, sample, reduce)
        found = self.further_losses(row_sums, loss, model, self.batch_to_compute(model, sample), lambda part: part)
        return found["loss"], sample_size, complete(log | {name: x.detach() for name, x in found.items()})

    def numbers(self, model: nn.Module, sample_size: int) -> list[float]:
        """Return λ₁, λ₂, and the sample size."""
        return [*self.weights(getattr(model, "num_updates", 0)), sample_size]

    def further_losses(
        self, row_sums: dict[str, list[RowSums]], loss: Tensor, model: Any, batch: Batch, part: Part
    ) -> dict[str, Tensor]:
        """Return the loss with the penalty in training, and the means in `LOG_NAMES`."""
        norm_weight, entropy_weight, sample_size = batch.numbers.unbind()
        is_real = real_queries(batch.src_tokens, batch.prev_output_tokens, (self.source_padding_idx, self.padding_idx))
        terms = {site: part(self.terms_of_site)(sums, is_real[site]) for site, sums in row_sums.items()}
        check_penalty_has_effect(model, list(terms.values()))
        if not terms:  # LayerDrop dropped every attention
            return {"loss": loss}
        # The mean over attentions: each site counts as often as it has attentions.
        mean = RegularizerTerms.mean([one for site, one in terms.items() for _ in row_sums[site]])
        if model.training:
            penalty = norm_weight * mean.norm + entropy_weight * mean.entropy_excess
            loss = loss + penalty * sample_size
        losses = {"loss": loss}
        for suffix, one in (("", mean), *((f"_{site}", one) for site, one in terms.items())):
            losses |= {name + suffix: getattr(one, field) * sample_size for field, name in LOG_NAMES.items()}
        return losses

    def terms_of_site(self, row_sums: list[RowSums], is_real: Tensor) -> RegularizerTerms:
        """Return the mean terms of a site's attentions, as if they were further heads of one."""
        weight_sums, w_log_w, num_keys = zip(*row_sums, strict=True)
        rows = RowStats(torch.cat(weight_sums, 1), torch.cat(w_log_w, 1), num_keys[0])
        return RegularizerTerms.from_row_stats(rows, is_real, self.entropy_bound, self.norm_penalty)

    def compiled_loss_of_batch(self, model: nn.Module, sample: dict[str, Any]) -> tuple[Tensor, int, dict[str, Any]]:
        """Compute what `forward` returns, with --compile."""
        loss, sample_size, log = super().compiled_loss_of_batch(model, sample)
        return loss, sample_size, complete(log)

    def weights(self, num_updates: int) -> tuple[float, float]:
        """Return λ₁ and λ₂ after `num_updates` updates."""
        cfg, last_update = self.cfg, self.cfg.attention_schedule_updates
        norm = cfg.attention_norm_weight, cfg.attention_norm_final_weight
        entropy = cfg.attention_entropy_weight, cfg.attention_entropy_final_weight
        return linear_weight(*norm, num_updates, last_update), linear_weight(*entropy, num_updates, last_update)

    @classmethod
    def reduce_metrics(cls, logging_outputs: list[dict[str, Any]]) -> None:
        """Log fairseq's metrics, and the means in `LOG_NAMES` over all attentions and for each site."""
        super().reduce_metrics(logging_outputs)
        for suffix in ("", *(f"_{site}" for site in SITES)):
            sample_size = sum(log[SAMPLE_SIZE + suffix] for log in logging_outputs)
            if sample_size:
                for name in LOG_NAMES.values():
                    total = sum(log[name + suffix] for log in logging_outputs)
                    metrics.log_scalar(name + suffix, total / sample_size, sample_size, round=4)


def check_config(cfg: AttentionRegularizationConfig) -> None:
    """Raise UserError if a flag is out of range or has no effect without another."""
    final_weights = ("attention_norm_final_weight", "attention_entropy_final_weight")
    given = [flag_name(name) for name in final_weights if getattr(cfg, name) is not None]
    limits = dict.fromkeys(("label_smoothing", "attention_entropy_bound"), 1.0)
    limits |= dict.fromkeys(("attention_norm_weight", "attention_entropy_weight", *final_weights), MAX_WEIGHT)
    for name, most in limits.items():
        value = getattr(cfg, name)
        if value is not None and not 0 <= value <= most:  # NaN is not, either
            raise UserError(f"{flag_name(name)} must be a number from 0 to {most:g}, not {value!r}")
    if cfg.attention_norm_margin != DEFAULT_MARGIN and str(cfg.attention_norm_penalty) != "hinge":
        raise UserError(
            f"--attention-norm-margin {cfg.attention_norm_margin:g} has no effect with --attention-norm-penalty "
            f"{cfg.attention_norm_penalty}; add --attention-norm-penalty hinge, or drop the margin"
        )
    num_updates = cfg.attention_schedule_updates
    if num_updates < 0 or bool(num_updates) != bool(given):
        raise UserError(
            f"--attention-schedule-updates is {num_updates}, with {' and '.join(given) or 'no final weight'}; "
            "a schedule needs a positive number of updates and --attention-norm-final-weight or "
            "--attention-entropy-final-weight"
        )


def complete(log: dict[str, Any]) -> dict[str, Any]:
    """Add the sample sizes, whose sums over workers make means of the sums of the other values.

    All workers must log the same names, so all values of a site are 0 if LayerDrop dropped every attention there.
    """
    for suffix in ("", *(f"_{site}" for site in SITES)):
        names = [name + suffix for name in LOG_NAMES.values()]
        log[SAMPLE_SIZE + suffix] = log["sample_size"] if names[0] in log else 0
        log = {name: log["loss"].new_zeros(()) for name in names} | log
    return log


def check_penalty_has_effect(model: nn.Module, terms: list[RegularizerTerms]) -> None:
    """Raise UserError if no attention has non-negative weights to penalize, or the penalty has no gradient."""
    mechanisms = [attention.mechanism for attention in named_attentions(model).values()]
    # With LayerDrop, a forward pass may skip all attentions that have weights.
    if not terms and not any(mechanism.has_weights and not mechanism.has_negative_weights for mechanism in mechanisms):
        raise UserError(
            "attention regularization needs non-negative weights, which --arch transformer, the Inhibitor and ReLA "
            "with GELU or leaky ReLU do not have; use --arch reluformer, or --criterion "
            "fused_label_smoothed_cross_entropy"
        )
    if torch.is_grad_enabled() and terms and not any(one.norm.requires_grad for one in terms):
        raise UserError(
            "attention regularization has no gradient: either --checkpoint-activations is set or all attentions are "
            "frozen; drop --checkpoint-activations or use --criterion fused_label_smoothed_cross_entropy"
        )
