"""Measure the training speed of models relative to one of them: whole training steps, alternating in one process.

    python benchmarks/training_speed.py DATA-BIN --config configs/datasets/multi30k_de_en.toml

A model is a name in configs/models, optionally with flags of fairseq-train: "softmax --dropout 0". All models train on
the same batches, one step each in turn, so that what slows the machine slows all of them. Reported is the median of the
paired ratios of the baseline's time to the model's, with a 95 % interval from 10,000 bootstrap samples. Uses a GPU if
there is one.
"""

import argparse
import itertools
import shlex
import sys
from pathlib import Path
from typing import Any

import torch
from fairseq import options, tasks
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.trainer import Trainer
from timing import benchmark_device, relative_speeds, seconds, write_results

import relumt
from relumt.errors import UserError, exit_on_user_error
from relumt.runs.dataset_config import require_dataset
from relumt.runs.environment import PRECISIONS, Device
from relumt.runs.flags import command_line, read_flags

MODELS = Path(__file__).resolve().parents[1] / "configs" / "models"


def parse_model(model: str) -> list[str]:
    """Return the flags that "NAME [flags…]" stands for; raise UserError if there is no such model."""
    name, *flags = shlex.split(model)
    return [*command_line(read_flags(MODELS / f"{name}.args")), *flags]


def build_trainer(data_bin: str, flags: list[str], device: Device) -> Trainer:
    """Return fairseq's trainer with these flags, on the training set of `data_bin` and in the precision of `device`."""
    arguments = [data_bin, *flags, *device.train_flags(), "--distributed-world-size", "1"]
    args = options.parse_args_and_arch(options.get_training_parser(), arguments)
    config = convert_namespace_to_omegaconf(args)
    torch.manual_seed(1)
    task = tasks.setup_task(config.task)
    task.load_dataset("train")
    trainer = Trainer(config, task, task.build_model(config.model), task.build_criterion(config.criterion))
    trainer.begin_epoch(1)
    return trainer


def first_batches(trainer: Trainer, count: int) -> list[dict[str, Any]]:
    """Return the first `count` batches, from as many epochs as it takes."""
    epochs = (trainer.get_train_iterator(epoch).next_epoch_itr(shuffle=True) for epoch in itertools.count(1))
    return list(itertools.islice(itertools.chain.from_iterable(epochs), count))


def step_times(trainers: dict[str, Trainer], baseline: str, warm_up: int, steps: int) -> dict[str, list[float]]:
    """Return model → seconds of each step; all models train on the baseline's batches, in alternating order."""
    times: dict[str, list[float]] = {name: [] for name in trainers}
    for step, batch in enumerate(first_batches(trainers[baseline], warm_up + steps)):
        for name in list(trainers) if step % 2 else reversed(trainers):
            elapsed = seconds(lambda trainer=trainers[name], batch=batch: trainer.train_step([batch], raise_oom=True))
            if step >= warm_up:
                times[name].append(elapsed)
        print(f"step {step + 1} of {warm_up + steps}", file=sys.stderr, flush=True)
    return times


def markdown_table(baseline: str, speeds: dict[str, dict[str, float]]) -> str:
    """Return a Markdown table of the speeds."""
    lines = [f"| model | steps | speed relative to {baseline} (median) | 95 % interval |", "|---|---|---|---|"]
    for name, speed in speeds.items():
        interval = f"{speed['low']:.3f}–{speed['high']:.3f}"
        lines.append(f"| {name} | {speed['pairs']} | {speed['median']:.3f} | {interval} |")
    return "\n".join(lines)


def main() -> None:
    """Measure, print the table and write the JSON file."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("data_bin")
    parser.add_argument("--config", type=Path, required=True, help="file in configs/datasets: sizes, optimizer, batch")
    parser.add_argument(
        "--models", nargs="+", default=["stock", "softmax", "relu_unregularized", "reluformer"], metavar="MODEL"
    )
    parser.add_argument("--baseline", metavar="MODEL", help="(default: the first of --models)")
    parser.add_argument("--steps", type=int, default=40, help="timed steps per model (default: %(default)s)")
    parser.add_argument("--warm-up", type=int, default=3, help="steps before timing (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--precision", choices=PRECISIONS, help="(default: fp16 on a GPU, fp32 on a CPU)")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    parser.add_argument(
        "--flags", nargs=argparse.REMAINDER, default=[], help="all that follows goes to fairseq-train for every model"
    )
    args = parser.parse_args()
    baseline = args.baseline or args.models[0]
    if baseline not in args.models:
        raise UserError(f"--models must include the baseline, {baseline}")
    torch.set_num_threads(args.threads)
    relumt.register()
    common = command_line(require_dataset(args.config.stem, args.config.parent).train)
    device = benchmark_device(args.precision)
    trainers = {
        name: build_trainer(args.data_bin, [*common, *parse_model(name), *args.flags], device) for name in args.models
    }
    speeds = relative_speeds(baseline, step_times(trainers, baseline, args.warm_up, args.steps))
    if args.json:
        write_results(args.json, "training steps", baseline, device, {"throughput": speeds})
    print(markdown_table(baseline, speeds))


if __name__ == "__main__":
    with exit_on_user_error():
        main()
