"""Registers relumt with fairseq and replaces what fairseq has no hooks for, once, when this module is imported.

A task chooses the class of its generator in `FairseqTask.build_generator`, and fairseq-generate names none. So this
method is wrapped. A task or a caller that names a class gets that class. fairseq derives the flags of generation, and
the settings that `build_generator` receives, from the fields of one dataclass. So it is replaced by one with an
additional field.
"""

import resource
import shutil
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, wraps
from pathlib import Path
from typing import Any

from fairseq import options
from fairseq.data import iterators
from fairseq.data.iterators import EpochBatchIterator
from fairseq.dataclass.configs import FairseqConfig, GenerationConfig
from fairseq.dataclass.initialize import hydra_init
from fairseq.tasks import FairseqTask
from fairseq.tasks.translation import TranslationTask

import relumt.plugin.criterions.attention_regularization  # registers the criterion that it extends, too
import relumt.plugin.model.mechanism_transformer
import relumt.plugin.tasks.corpora  # noqa: F401
from relumt.attention.registry import load_extensions
from relumt.errors import UserError, print_status
from relumt.plugin.checkpoints import fairseq_hooks
from relumt.plugin.cpu_products import limit_compiled_products, select_fp32_backend
from relumt.plugin.model.attention import MechanismAttention
from relumt.plugin.search.generator import BeamSearchGenerator
from relumt.plugin.search.length_penalty import FAIRSEQ_PENALTY, check_length_penalty
from relumt.plugin.tasks.samples import post_validate

SHARED_MEMORY = Path("/dev/shm")
"""Where Linux keeps what processes share."""

MIN_SHARED_MEMORY = 32 << 20
"""Bytes: twenty batches of 64k tokens. Docker gives a container 64 MiB by default."""

MIN_OPEN_FILES = 256
"""fairseq keeps a dozen batches, each of whose tensors is an open file."""

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
                f"--length-penalty {length_penalty} needs relumt's beam search, found one of the task "
                f"{type(task).__name__}; drop the flag"
            )
        extra_gen_cls_kwargs = {**(extra_gen_cls_kwargs or {}), "length_penalty": length_penalty}
    return build_generator_of_fairseq(task, models, args, seq_gen_cls, extra_gen_cls_kwargs, *rest, **kwargs)


@cache
def can_start_workers() -> bool:
    """Return whether worker processes have what they need to pass on batches; if not, say so once."""
    free = shutil.disk_usage(SHARED_MEMORY).free if SHARED_MEMORY.is_dir() else MIN_SHARED_MEMORY
    open_files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if free >= MIN_SHARED_MEMORY and not 0 <= open_files < MIN_OPEN_FILES:  # -1 is unlimited
        return True
    print_status(
        f"batches are prepared without worker processes, which need {MIN_SHARED_MEMORY >> 20} MiB in {SHARED_MEMORY} "
        f"(found {free / 2**20:.1f}) and {MIN_OPEN_FILES} open files (ulimit -n is {open_files})"
    )
    return False


BATCHES = "batches"
"""Key of the number of batches of an epoch in the state of its iterator."""


class TrainingEpochBatchIterator(EpochBatchIterator):
    """fairseq's iterator over the batches of epochs, to which its sampler refers only weakly; its state has more.

    A worker process that cannot pass on a batch goes on with the next, and fairseq waits for the batch forever. So
    without enough shared memory or open files, this process prepares the same batches itself.

    With --update-epoch-batch-itr, fairseq makes a new iterator for each epoch. The iterator and its sampler refer to
    each other, so the old one and its data loader's worker live until Python looks for cycles, often for many epochs.
    Each worker keeps all memory that the training process had when it was forked.

    If training resumes with other batches, because of --max-tokens or the number of devices, fairseq skips as many as
    before, or refuses to if there are fewer. Here it skips the same part of the epoch.
    """

    num_workers: int

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.num_workers and not can_start_workers():
            self.num_workers, self.persistent_workers = 0, False

    def state_dict(self) -> dict[str, Any]:
        """Return fairseq's state and the number of batches."""
        return {**super().state_dict(), BATCHES: len(self)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what `state_dict` returned; with another number of batches, the same part of them is skipped."""
        self.epoch = state_dict["epoch"]  # the batches depend on it
        done, count = state_dict.get("iterations_in_epoch", 0), state_dict.get(BATCHES)
        if done and count:
            state_dict = state_dict | {"iterations_in_epoch": done * len(self) // count}
        super().load_state_dict(state_dict)

    @property
    def ordered_batches(self) -> Callable[..., Any]:
        """What the sampler keeps: fairseq's method of the same name, which does not keep the iterator alive."""
        iterator = weakref.ref(self)
        return lambda *args: EpochBatchIterator.ordered_batches(iterator(), *args)


iterators.EpochBatchIterator = TrainingEpochBatchIterator
FairseqTask.build_generator = build_generator
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
