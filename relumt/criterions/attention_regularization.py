"""`label_smoothed_cross_entropy_with_attention_regularization`: fairseq's loss and [RF] Eq. 7.

The penalty is a mean per row, so it is multiplied by the sample size, by which fairseq divides: its weight is then the
same for every batch size, number of accumulated batches and of workers. Everything logged is summable.
"""

from collections import defaultdict
from dataclasses import dataclass, field, fields

import torch
from fairseq.criterions import register_criterion
from fairseq.criterions.label_smoothed_cross_entropy import (
    LabelSmoothedCrossEntropyCriterion,
    LabelSmoothedCrossEntropyCriterionConfig,
)
from fairseq.logging import metrics
from torch import Tensor, nn

from relumt.attention import AttentionMask, AttentionOutput
from relumt.criterions.regularization import RegularizerTerms
from relumt.errors import UserError, exit_on_user_error
from relumt.modules.attention import MechanismAttention
from relumt.modules.hooks import attention_hook, named_attentions
from relumt.options import SITES

LOGGED = {"norm": "norm_reg", "entropy_excess": "entropy_reg", "entropy": "entropy", "null_rate": "null_rate"}
"""Field of RegularizerTerms → its name in the log, followed there by _SITE for one site."""

OF_SIZE = "attention_sample_size"
"""Name in the log of what the figures were multiplied by, followed by _SITE too."""


@dataclass
class AttentionRegularizationConfig(LabelSmoothedCrossEntropyCriterionConfig):
    """Flags of the criterion; the weights are λ₁ and λ₂ of [RF] Eq. 7, which prints no values for them."""

    attention_norm_weight: float = field(default=0.1, metadata={"help": "λ₁, weight of |log Σ_j s_ij|"})
    attention_entropy_weight: float = field(default=0.1, metadata={"help": "λ₂, weight of max(H(p_i) − C_i, 0)"})
    attention_entropy_bound: float = field(default=0.7, metadata={"help": "c of the bound C_i = c·log n_i"})


@register_criterion(
    "label_smoothed_cross_entropy_with_attention_regularization", dataclass=AttentionRegularizationConfig
)
class AttentionRegularization(LabelSmoothedCrossEntropyCriterion):
    """Label-smoothed cross-entropy plus, while training, λ₁·norm_reg + λ₂·entropy_reg of the attention rows."""

    def __init__(
        self,
        task,
        sentence_avg,
        label_smoothing,
        ignore_prefix_size=0,
        report_accuracy=False,
        attention_norm_weight=0.1,
        attention_entropy_weight=0.1,
        attention_entropy_bound=0.7,
    ) -> None:
        super().__init__(task, sentence_avg, label_smoothing, ignore_prefix_size, report_accuracy)
        self.norm_weight = attention_norm_weight
        self.entropy_weight = attention_entropy_weight
        self.entropy_bound = attention_entropy_bound
        self.source_padding = task.source_dictionary.pad()

    def forward(self, model: nn.Module, sample: dict, reduce: bool = True):
        """Compute the loss of `sample`; returns (loss, sample size, what to log), as fairseq's criteria do."""
        net_input = sample["net_input"]
        source = net_input["src_tokens"].ne(self.source_padding)
        target = net_input["prev_output_tokens"].ne(self.padding_idx)
        by_site: dict[str, list[RegularizerTerms]] = defaultdict(list)

        def collect(name: str, attention: MechanismAttention, result: AttentionOutput, mask: AttentionMask) -> None:
            if result.row_stats is None:
                return
            real = source if attention.site == "encoder" else target
            by_site[attention.site].append(RegularizerTerms.from_row_stats(result.row_stats, real, self.entropy_bound))

        with attention_hook(model, collect):
            loss, sample_size, log = super().forward(model, sample, reduce)
        every = [one for several in by_site.values() for one in several]
        with exit_on_user_error():
            refuse_unusable(model, every)

        if model.training and every:
            overall = RegularizerTerms.mean(every)
            penalty = self.norm_weight * overall.norm + self.entropy_weight * overall.entropy_excess
            loss = loss + penalty * sample_size
            log["loss"] = loss.data
        log |= summable("", every, sample_size, loss)
        for site in SITES:
            log |= summable(f"_{site}", by_site[site], sample_size, loss)
        return loss, sample_size, log

    @classmethod
    def reduce_metrics(cls, logging_outputs: list[dict]) -> None:
        """Log fairseq's figures, and norm_reg, entropy_reg, entropy and null_rate, over all and for each site."""
        super().reduce_metrics(logging_outputs)
        for suffix in ("", *(f"_{site}" for site in SITES)):
            size = sum(log[OF_SIZE + suffix] for log in logging_outputs)
            if size:
                for name in LOGGED.values():
                    total = sum(log[name + suffix] for log in logging_outputs)
                    metrics.log_scalar(name + suffix, total / size, size, round=4)


def summable(suffix: str, several: list[RegularizerTerms], sample_size: int, loss: Tensor) -> dict[str, Tensor | int]:
    """Mean figures times the sample size, and that size: sums over workers give a mean again.

    Workers have to log the same names: where LayerDrop left none of a site, the figures and the size are 0.
    """
    if not several:
        return {name + suffix: loss.new_zeros(()) for name in LOGGED.values()} | {OF_SIZE + suffix: 0}
    regularity = RegularizerTerms.mean(several)
    figures = {LOGGED[f.name] + suffix: getattr(regularity, f.name).detach() * sample_size for f in fields(regularity)}
    return figures | {OF_SIZE + suffix: sample_size}


def refuse_unusable(model: nn.Module, every: list[RegularizerTerms]) -> None:
    """Raise UserError where the penalty would have nothing to act on."""
    if not every and not any(
        of.mechanism.has_weights and not of.mechanism.has_negative_weights for of in named_attentions(model).values()
    ):
        raise UserError(
            "attention regularization needs attention weights, which --arch transformer and the inhibitor do not "
            "give; use --arch reluformer or --criterion label_smoothed_cross_entropy"
        )
    if torch.is_grad_enabled() and every and not any(one.norm.requires_grad for one in every):
        raise UserError(
            "attention regularization gets no gradient: not through --checkpoint-activations, of which drop one or the "
            "other, nor with every attention frozen"
        )
