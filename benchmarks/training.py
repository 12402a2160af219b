"""Training throughput relative to stock fairseq: whole training steps, alternating in one process.

    python benchmarks/training.py DATA-BIN --config configs/datasets/multi30k_de_en/train.args

Every system trains on the same batches, one step each in turn, so that what slows the machine slows all of them.
Reported is the median of the paired ratios stock's time / ours, with a 95 % interval from 10,000 bootstrap samples.
Runs on a GPU where there is one.
"""

import argparse
import shlex
import statistics
import sys
from pathlib import Path

import torch
from fairseq import options, tasks
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.trainer import Trainer
from measure import interval, seconds

import relumt
from relumt.errors import UserError, one_line_errors
from relumt.runs.flags import command_line, read_flags

PLAIN = "label_smoothed_cross_entropy"
SYSTEMS = {
    "stock": f"--arch transformer --criterion {PLAIN}",
    "softmax": f"--arch mechanism_transformer --criterion {PLAIN}",
    "relu": f"--arch reluformer --criterion {PLAIN}",
    "relu, regularised": f"--arch reluformer --criterion {PLAIN}_with_attention_regularization",
}


def build(data_bin: str, flags: list[str]) -> Trainer:
    """A fairseq trainer for `flags` on the training set of `data_bin`."""
    device = [] if torch.cuda.is_available() else ["--cpu"]
    args = options.parse_args_and_arch(options.get_training_parser(), [data_bin, *flags, *device])
    config = convert_namespace_to_omegaconf(args)
    torch.manual_seed(1)
    task = tasks.setup_task(config.task)
    task.load_dataset("train")
    trainer = Trainer(config, task, task.build_model(config.model), task.build_criterion(config.criterion))
    trainer.begin_epoch(1)
    return trainer


def batches(trainer: Trainer, count: int) -> list[dict]:
    """The first `count` batches of the first epoch."""
    epoch = trainer.get_train_iterator(epoch=1).next_epoch_itr(shuffle=True)
    return [next(epoch) for _ in range(count)]


def report(baseline: str, times: dict[str, list[float]]) -> str:
    """A Markdown table of throughput relative to `baseline`."""
    lines = [f"| system | steps | throughput / {baseline}'s, median | 95 % interval |", "|---|---|---|---|"]
    for name, measured in times.items():
        ratios = [b / a for a, b in zip(measured, times[baseline], strict=True)]
        low, high = interval(ratios)
        lines.append(f"| {name} | {len(ratios)} | {statistics.median(ratios):.3f} | {low:.3f}–{high:.3f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("data_bin")
    parser.add_argument("--config", type=Path, required=True, help="flags of the dataset: sizes, optimiser, batch")
    parser.add_argument("--systems", nargs="+", default=list(SYSTEMS), choices=SYSTEMS)
    parser.add_argument("--baseline", default="stock", choices=SYSTEMS)
    parser.add_argument("--steps", type=int, default=40, help="timed steps of each system (%(default)s)")
    parser.add_argument("--warm-up", type=int, default=3, help="steps before timing (%(default)s)")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    args = parser.parse_args()
    if args.baseline not in args.systems:
        raise UserError(f"--systems must name the baseline, {args.baseline}")
    torch.set_num_threads(args.threads)
    relumt.register()
    common = command_line(read_flags(args.config))
    trainers = {name: build(args.data_bin, [*common, *shlex.split(SYSTEMS[name])]) for name in args.systems}
    times: dict[str, list[float]] = {name: [] for name in trainers}
    for step, batch in enumerate(batches(trainers[args.baseline], args.warm_up + args.steps)):
        order = list(trainers) if step % 2 else list(reversed(trainers))
        for name in order:
            taken = seconds(lambda trainer=trainers[name], batch=batch: trainer.train_step([batch]))
            if step >= args.warm_up:
                times[name].append(taken)
        print(f"step {step + 1} of {args.warm_up + args.steps}", file=sys.stderr, flush=True)
    print(report(args.baseline, times))


if __name__ == "__main__":
    with one_line_errors():
        main()
