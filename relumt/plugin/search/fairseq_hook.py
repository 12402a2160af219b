"""Makes fairseq's tasks search with `BeamSearchGenerator`, and adds --length-penalty to fairseq's flags of generation.

A task chooses the class of its generator in `FairseqTask.build_generator`, and fairseq-generate names none. So
`install` wraps this method. A task or a caller that names a class gets that class.

fairseq derives the flags of generation, and the settings that `build_generator` receives, from the fields of one
dataclass. So `install` replaces this dataclass by one with an additional field.
"""

from dataclasses import dataclass, field
from functools import wraps
from typing import Any

from fairseq import options
from fairseq.dataclass.configs import FairseqConfig, GenerationConfig
from fairseq.dataclass.initialize import hydra_init
from fairseq.tasks import FairseqTask

from relumt.errors import UserError, exit_on_user_error
from relumt.plugin.model.attention import MechanismAttention
from relumt.plugin.search.generator import BeamSearchGenerator
from relumt.plugin.search.length_penalty import FAIRSEQ_PENALTY, check_length_penalty

build_generator_of_fairseq = FairseqTask.build_generator


@dataclass
class PenaltyGenerationConfig(GenerationConfig):
    """fairseq's settings of generation, and the form of the length penalty."""

    length_penalty: str = field(
        default=FAIRSEQ_PENALTY,
        metadata={"help": "divide scores by len^LENPEN (length) or by ((5 + len)/6)^LENPEN (gnmt)"},
    )


def install() -> None:
    """Replace the method and the dataclass; calling it again has no effect."""
    FairseqTask.build_generator = build_generator
    options.GenerationConfig = PenaltyGenerationConfig  # the flags
    generation = FairseqConfig.__dataclass_fields__["generation"]  # the settings that are made from them
    generation.type = generation.default = PenaltyGenerationConfig
    FairseqConfig.__annotations__["generation"] = FairseqConfig.generation = PenaltyGenerationConfig
    hydra_init()


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
    """Build the generator; exit with a one-line message if the settings are invalid.

    Alignments need fairseq's `SequenceGeneratorWithAlignment`, which fairseq then chooses, and attention weights.
    """
    prints_alignment = bool(getattr(args, "print_alignment", False))
    for attention in (module for model in models for module in model.modules()):
        if isinstance(attention, MechanismAttention):
            attention.weights_for_alignment = prints_alignment
    if seq_gen_cls is None and not prints_alignment:
        seq_gen_cls = BeamSearchGenerator
    with exit_on_user_error():
        check_beam(args)
        check_length_penalty(args)
        length_penalty = getattr(args, "length_penalty", FAIRSEQ_PENALTY)
        if length_penalty != FAIRSEQ_PENALTY:
            if seq_gen_cls is None or not issubclass(seq_gen_cls, BeamSearchGenerator):
                raise UserError(
                    f"--length-penalty {length_penalty} needs relumt's beam search, found one of the task "
                    f"{type(task).__name__}; drop the flag"
                )
            extra_gen_cls_kwargs = {**(extra_gen_cls_kwargs or {}), "length_penalty": length_penalty}
        try:
            return build_generator_of_fairseq(task, models, args, seq_gen_cls, extra_gen_cls_kwargs, *rest, **kwargs)
        except (AssertionError, ValueError) as error:
            if seq_gen_cls not in (None, BeamSearchGenerator) or not str(error):
                raise  # not about flags
            raise UserError(f"fairseq cannot search with these flags: {error}; change or drop them") from error


def check_beam(settings: Any) -> None:
    """Raise UserError if the size of the beam is impossible; fairseq would fail with a traceback in the first batch."""
    beam, groups = getattr(settings, "beam", 1), getattr(settings, "diverse_beam_groups", -1)
    if beam < 1:
        raise UserError(f"--beam is {beam}; choose a number from 1")
    if groups > 0 and beam % groups:
        raise UserError(f"--diverse-beam-groups {groups} does not divide --beam {beam}; choose a number that does")
