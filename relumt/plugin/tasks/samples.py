"""Translates a few validation sentences after each validation, to show what a model has learned so far.

fairseq calls `post_validate` of a task if there is one. It does nothing unless RELUMT_SAMPLES is set, as by the
scripts, to fairseq's name for joining the data's subwords (subword_nmt, sentencepiece, none). Translating draws no
random numbers, so training ends in the same bits with and without it.
"""

import logging
import os
from argparse import Namespace
from collections.abc import Mapping
from itertools import islice
from typing import Any

from fairseq.data import LanguagePairDataset
from fairseq.distributed import utils as distributed_utils
from fairseq.models import BaseFairseqModel
from fairseq.tasks.translation import TranslationTask
from fairseq.utils import move_to_cuda, strip_pad
from torch import Tensor

from relumt.process import SAMPLES_VARIABLE

NUM_SAMPLES = 2
MAX_LENGTH = 60
"""Tokens of the longest sentence that is a sample: a document would take as long as the validation."""

logger = logging.getLogger(__name__)


def post_validate(task: TranslationTask, model: BaseFairseqModel, *_: Any) -> None:
    """Log the greedy translations of the first samples; the first time in a training also the sentences themselves."""
    subwords = os.environ.get(SAMPLES_VARIABLE)
    samples = select_samples(task) if subwords and distributed_utils.get_global_rank() == 0 else None
    if samples is None:
        return

    def log(name: str, number: int, tokens: Tensor, dictionary: Any) -> None:
        logger.info(f"{name} {number}: {dictionary.string(tokens.int().cpu(), subwords)}")

    is_first = not hasattr(task, "shown_samples")
    task.shown_samples = True
    generator = task.build_generator([model], Namespace(beam=1, max_len_a=1, max_len_b=10))
    on_gpu = next(model.parameters()).is_cuda
    translations = task.inference_step(generator, [model], move_to_cuda(samples) if on_gpu else samples)
    for number, (best, *_) in enumerate(translations, start=1):
        if is_first:
            source = strip_pad(samples["net_input"]["src_tokens"][number - 1], task.src_dict.pad())
            log("source", number, source, task.src_dict)
            log("reference", number, strip_pad(samples["target"][number - 1], task.tgt_dict.pad()), task.tgt_dict)
        log("translation", number, best["tokens"], task.tgt_dict)


def select_samples(task: TranslationTask) -> Mapping[str, Any] | None:
    """Return a batch of the first short sentences of the validation set, None if there are none."""
    subset = next((name for name in task.datasets if name != task.cfg.train_subset), None)
    dataset = task.datasets.get(subset)
    if not isinstance(dataset, LanguagePairDataset) or dataset.tgt_sizes is None:
        return None
    sizes = zip(dataset.src_sizes, dataset.tgt_sizes, strict=True)
    short = list(islice((index for index, pair in enumerate(sizes) if max(pair) <= MAX_LENGTH), NUM_SAMPLES))
    if not short:
        return None
    return dataset.collater([dataset[index] for index in short])
