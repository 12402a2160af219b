"""Train and translate batches on request, with the command line of fairseq-train: a worker of training.py.

    python benchmarks/fairseq_worker.py BATCHES DATA-BIN [flags of fairseq-train…]

Without --user-dir this is stock fairseq: nothing of relumt is imported.
"""

import logging
import os
import sys
from copy import deepcopy
from typing import Any

import torch
from step_profile import Summary, profile_steps
from worker_protocol import BEAM, Batches, serve


def build_trainer(arguments: list[str]) -> Any:
    """Return fairseq's trainer of a new model, at the beginning of its first epoch."""
    from fairseq import options, tasks  # imported here, after logging is configured
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf
    from fairseq.trainer import Trainer

    args = options.parse_args_and_arch(options.get_training_parser(), arguments)
    if torch.cuda.is_available():
        args.tpu = False  # fairseq takes --bf16 as a request for a TPU, and would train on the CPU
    config = convert_namespace_to_omegaconf(args)
    torch.manual_seed(1)
    task = tasks.setup_task(config.task)
    trainer = Trainer(config, task, task.build_model(config.model), task.build_criterion(config.criterion))
    trainer.begin_epoch(1)
    return trainer


class FairseqSystem:
    """A trainer and the batches that it trains on and translates."""

    def __init__(self, trainer: Any, batches: Batches) -> None:
        self.trainer, self.batches = trainer, batches
        self.is_prepared_for_inference = False

    def train(self, number: int) -> int:
        """Take a training step on a batch; return its target tokens."""
        batch = self.batches["train"][number]
        self.trainer.train_step([batch], raise_oom=True)
        return batch["ntokens"]

    def profile(self, count: int) -> Summary:
        """Return where the time of training steps on the first `count` batches goes."""
        return profile_steps(self.train, range(count))

    def translate(self, number: int) -> int:
        """Translate a batch by beam search into sentences of the given length; return their tokens."""
        from fairseq import utils
        from fairseq.dataclass.configs import GenerationConfig

        self.prepare_for_inference()
        length = self.batches["lengths"][number] - 1  # fairseq does not count </s>
        model, task = self.trainer.model, self.trainer.task
        generator = task.build_generator(
            [model], GenerationConfig(beam=BEAM, min_len=length, max_len_a=0, max_len_b=length)
        )
        batch = self.batches["test"][number]
        hypotheses = task.inference_step(generator, [model], utils.move_to_cuda(batch) if self.trainer.cuda else batch)
        return sum(len(beam[0]["tokens"]) for beam in hypotheses)

    def prepare_for_inference(self) -> None:
        """Change the model as fairseq-generate does, which ends training.

        A model that has trained with --cpu-bf16 translates as with fairseq-generate's --bf16.
        """
        if not self.is_prepared_for_inference:
            config = deepcopy(self.trainer.cfg)
            config.common.bf16 = getattr(config.criterion, "cpu_bf16", False)
            self.trainer.model.prepare_for_inference_(config)
            self.trainer.model.eval()
            self.is_prepared_for_inference = True


def keep_memory_peaks() -> None:
    """Keep fairseq from resetting the peak of a GPU's memory after each step, before `measure_memory` reads it."""
    torch.cuda.reset_peak_memory_stats = lambda device=None: None


def main() -> None:
    """Load the batches, build the trainer and answer requests."""
    logging.basicConfig(level=logging.WARNING)
    keep_memory_peaks()
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    path, *arguments = sys.argv[1:]
    system = FairseqSystem(build_trainer(arguments), torch.load(path))
    serve({"train": system.train, "translate": system.translate}, {"profile": system.profile})


if __name__ == "__main__":
    main()
