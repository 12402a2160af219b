"""Makes fairseq's tasks search with `BeamSearchGenerator`.

A task chooses the class of its generator in `FairseqTask.build_generator`, and fairseq-generate names none. So
`install` wraps this method. A task or a caller that names a class gets that class.
"""

from functools import wraps
from typing import Any

from fairseq.tasks import FairseqTask

from relumt.search.generator import BeamSearchGenerator

build_generator_of_fairseq = FairseqTask.build_generator


def install() -> None:
    """Replace the method; calling it again has no effect."""
    FairseqTask.build_generator = build_generator


@wraps(build_generator_of_fairseq)
def build_generator(
    task: FairseqTask, models: Any, args: Any, seq_gen_cls: type | None = None, *rest: Any, **kwargs: Any
) -> Any:
    """Build the generator; alignments need fairseq's `SequenceGeneratorWithAlignment`, which fairseq then chooses."""
    if seq_gen_cls is None and not getattr(args, "print_alignment", False):
        seq_gen_cls = BeamSearchGenerator
    return build_generator_of_fairseq(task, models, args, seq_gen_cls, *rest, **kwargs)
