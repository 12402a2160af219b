"""Training throughput of models relative to one of them: whole training steps, alternating in one process.

    python benchmarks/training_speed.py DATA-BIN --config configs/datasets/multi30k_de_en.toml

A model is a name in configs/models, with further flags of fairseq's where there are any: "softmax --dropout 0". Every
one trains on the same batches, one step each in turn, so that what slows the machine slows all of them. Reported is the
median of the paired ratios the baseline's time / the model's, with a 95 % interval from 10,000 bootstrap samples. Runs
on a GPU where there is one.
"""

import argparse
import itertools
import shlex
import sys
from pathlib import Path

import torch
from fairseq import options, tasks
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.trainer import Trainer
from timing import benchmark_device, relative_speeds, seconds, write_results

import relumt
from relumt.commands.run_record import PRECISIONS
from relumt.errors import UserError, exit_on_user_error
from relumt.runs.dataset_config import require_dataset
from relumt.runs.environment import Device
from relumt.runs.flags import command_line, read_flags

MODELS = Path(__file__).resolve().parents[1] / "configs" / "models"


def flags_of(model: str) -> list[str]:
    """The flags of "NAME [flags…]"; raises UserError if there is no such model."""
    name, *further = shlex.split(model)
    return [*command_line(read_flags(MODELS / f"{name}.args")), *further]


def build(data_bin: str, flags: list[str], device: Device) -> Trainer:
    """A fairseq trainer for `flags` on the training set of `data_bin`, in the precision of `device`."""
    given = [data_bin, *flags, *device.train_flags(), "--distributed-world-size", "1"]
    args = options.parse_args_and_arch(options.get_training_parser(), given)
    config = convert_namespace_to_omegaconf(args)
    torch.manual_seed(1)
    task = tasks.setup_task(config.task)
    task.load_dataset("train")
    trainer = Trainer(config, task, task.build_model(config.model), task.build_criterion(config.criterion))
    trainer.begin_epoch(1)
    return trainer


def batches(trainer: Trainer, count: int) -> list[dict]:
    """The first `count` batches, of as many epochs as it takes."""
    epochs = (trainer.get_train_iterator(epoch).next_epoch_itr(shuffle=True) for epoch in itertools.count(1))
    return list(itertools.islice(itertools.chain.from_iterable(epochs), count))


def step_times(trainers: dict[str, Trainer], baseline: str, warm_up: int, steps: int) -> dict[str, list[float]]:
    """Seconds of each step by model: the baseline's batches, every model's step on one after the other's."""
    times: dict[str, list[float]] = {name: [] for name in trainers}
    for step, batch in enumerate(batches(trainers[baseline], warm_up + steps)):
        for name in list(trainers) if step % 2 else reversed(trainers):
            taken = seconds(lambda trainer=trainers[name], batch=batch: trainer.train_step([batch], raise_oom=True))
            if step >= warm_up:
                times[name].append(taken)
        print(f"step {step + 1} of {warm_up + steps}", file=sys.stderr, flush=True)
    return times


def report(baseline: str, summary: dict[str, dict[str, float]]) -> str:
    """A Markdown table of throughput relative to `baseline`."""
    lines = [f"| model | steps | throughput / {baseline}'s, median | 95 % interval |", "|---|---|---|---|"]
    for name, of in summary.items():
        lines.append(f"| {name} | {of['pairs']} | {of['median']:.3f} | {of['low']:.3f}–{of['high']:.3f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("data_bin")
    parser.add_argument("--config", type=Path, required=True, help="file in configs/datasets: sizes, optimizer, batch")
    parser.add_argument(
        "--models", nargs="+", default=["stock", "softmax", "relu_unregularised", "reluformer"], metavar="MODEL"
    )
    parser.add_argument("--baseline", metavar="MODEL", help="what the others are compared with (the first of --models)")
    parser.add_argument("--steps", type=int, default=40, help="timed steps of each system (%(default)s)")
    parser.add_argument("--warm-up", type=int, default=3, help="steps before timing (%(default)s)")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--precision", choices=PRECISIONS, help="(default: fp16 on a GPU, fp32 on a CPU)")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    parser.add_argument("--flags", nargs=argparse.REMAINDER, default=[], help="all that follows is for every model")
    args = parser.parse_args()
    baseline = args.baseline or args.models[0]
    if baseline not in args.models:
        raise UserError(f"--models must name the baseline, {baseline}")
    torch.set_num_threads(args.threads)
    relumt.register()
    common = command_line(require_dataset(args.config.stem, args.config.parent).train)
    device = benchmark_device(args.precision)
    trainers = {name: build(args.data_bin, [*common, *flags_of(name), *args.flags], device) for name in args.models}
    summary = relative_speeds(baseline, step_times(trainers, baseline, args.warm_up, args.steps))
    if args.json:
        write_results(args.json, "training steps", baseline, device, {"throughput": summary})
    print(report(baseline, summary))


if __name__ == "__main__":
    with exit_on_user_error():
        main()
