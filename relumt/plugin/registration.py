"""Registers relumt with fairseq and replaces what fairseq has no hooks for, once, when this module is imported.

A task chooses the class of its generator in `FairseqTask.build_generator`, and fairseq-generate names none. So this
method is wrapped. A task or a caller that names a class gets that class. fairseq derives the flags of generation, and
the settings that `build_generator` receives, from the fields of one dataclass. So it is replaced by one with an
additional field.
"""

from dataclasses import dataclass, field
from functools import wraps
from typing import Any

import fairseq.optim.adam
import torch
from fairseq import options
from fairseq.data import iterators
from fairseq.dataclass.configs import FairseqConfig, GenerationConfig
from fairseq.dataclass.initialize import hydra_init
from fairseq.tasks import FairseqTask
from fairseq.tasks.translation import TranslationTask

import relumt.plugin.criterions.attention_regularization  # registers the criterion that it extends, too
import relumt.plugin.model.mechanism_transformer
import relumt.plugin.tasks.corpora  # noqa: F401
from relumt.attention.registry import load_extensions
from relumt.errors import UserError, print_status
from relumt.plugin.batches import TrainingEpochBatchIterator
from relumt.plugin.checkpoints import fairseq_hooks
from relumt.plugin.cpu_products import limit_compiled_products, select_fp32_backend
from relumt.plugin.fused_adam import fused_adam_class
from relumt.plugin.model.attention import MechanismAttention
from relumt.plugin.search.generator import BeamSearchGenerator
from relumt.plugin.search.length_penalty import FAIRSEQ_PENALTY, check_length_penalty
from relumt.plugin.tasks.samples import post_validate

build_generator_of_fairseq = FairseqTask.build_generator


@dataclass
class PenaltyGenerationConfig(GenerationConfig):
    """fairseq's settings of generation, and the form of the length penalty."""

    length_penalty: str = field(
        default=FAIRSEQ_PENALTY,
        metadata={"help": "divide scores by len^LENPEN (length) or by ((5 + len)/6)^LENPEN (gnmt)"},
    )


@wraps(build_generator_of_fairseq)
def build_generator(
    task: FairseqTask,
    models: Any,
    args: Any,
    seq_gen_cls: type | None = None,
    extra_gen_cls_kwargs: dict[str, Any] | None = None,
    *rest: Any,
    **kwargs: Any,
) -> Any:
    """Build the generator; raise UserError if --length-penalty is invalid or would have no effect.

    Alignments need fairseq's `SequenceGeneratorWithAlignment`, which fairseq then chooses, and attention weights.
    """
    prints_alignment = bool(getattr(args, "print_alignment", False))
    for attention in (module for model in models for module in model.modules()):
        if isinstance(attention, MechanismAttention):
            attention.weights_for_alignment = prints_alignment
    if seq_gen_cls is None and not prints_alignment:
        seq_gen_cls = BeamSearchGenerator
    check_length_penalty(args)
    length_penalty = getattr(args, "length_penalty", FAIRSEQ_PENALTY)
    if length_penalty != FAIRSEQ_PENALTY:
        if seq_gen_cls is None or not issubclass(seq_gen_cls, BeamSearchGenerator):
            raise UserError(
                f"--length-penalty {length_penalty} needs relumt's beam search, found fairseq's, which "
                f"--print-alignment or the task {type(task).__name__} needs; drop one of them"
            )
        extra_gen_cls_kwargs = {**(extra_gen_cls_kwargs or {}), "length_penalty": length_penalty}
    return build_generator_of_fairseq(task, models, args, seq_gen_cls, extra_gen_cls_kwargs, *rest, **kwargs)


def begin_epoch(task: FairseqTask, epoch: int, model: Any) -> None:
    """Tell the model which epoch of training begins, for --attention-softmax-epochs, and say so if softmax ends."""
    model.set_epoch(epoch)
    if any(isinstance(x, MechanismAttention) and 0 < x.softmax_epochs == epoch - 1 for x in model.modules()):
        print_status(f"epoch {epoch}: attention is without softmax from here on")


iterators.EpochBatchIterator = TrainingEpochBatchIterator
fairseq.optim.adam.get_fused_adam_class = fused_adam_class
FairseqTask.build_generator = build_generator
FairseqTask.begin_epoch = begin_epoch
TranslationTask.post_validate = post_validate
options.GenerationConfig = PenaltyGenerationConfig  # the flags
load_extensions()
generation = FairseqConfig.__dataclass_fields__["generation"]  # the settings that are made from them
generation.type = generation.default = PenaltyGenerationConfig
FairseqConfig.__annotations__["generation"] = FairseqConfig.generation = PenaltyGenerationConfig
hydra_init()
fairseq_hooks.install()
limit_compiled_products()
select_fp32_backend()
torch.backends.cuda.enable_cudnn_sdp(False)  # it plans every new shape of softmax for 8 ms; --compile repeats shapes
