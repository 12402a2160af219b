"""Training and decoding speed of finished runs relative to one of them, alternating in one process.

    python benchmarks/train_decode_speed.py RUNS DATASET --models softmax sparsemax rela_g --json RUNS/speed-DATASET.json

Training is that of benchmarks/training_speed.py: whole steps on the same batches, one of each model in turn, with the flags
that the runs were trained with, in fp16 on a GPU. Decoding is that
of benchmarks/decoding_speed.py: the same sentences of the test set, every model in turn. Reported is the median of the first
model's time over each model's, with a 95 % interval from 10,000 bootstrap samples; above 1 is faster than the first.
"""

import argparse

from decoding_speed import (
    CONFIGS,
    add_arguments,
    checkpoints_of,
    first_run,
    generation,
    groups_by_length,
    open_runs,
    relative_times,
    translator,
)
from timing import benchmark_device, is_up_to_date, relative_speeds, write_results
from training_speed import MODELS, build, step_times

import relumt
from relumt.console import quiet_fairseq
from relumt.errors import exit_on_user_error
from relumt.runs.dataset_config import require_dataset
from relumt.runs.environment import Device
from relumt.runs.flags import command_line, read_flags, readable
from relumt.runs.record import RunRecord, load_record
from relumt.tables.speeds import ratio


def flags_of(record: RunRecord) -> list[str]:
    """The flags that a run was trained with.

    run.json has a flag's values as one string: those that the configs have too are taken from there, the others split.
    """
    configured = require_dataset(record.dataset, CONFIGS).train | read_flags(MODELS / f"{record.model}.args")
    as_read, recorded = readable(configured), record.provenance.flags
    return command_line(
        {name: configured[name] if as_read.get(name) == of else of.split() for name, of in recorded.items()}
    )


def training(args: argparse.Namespace, device: Device) -> dict[str, dict[str, float]]:
    """Speed of training steps by model."""
    records = {model: load_record(first_run(args.runs, args.dataset, model)) for model in args.models}
    trainers = {model: build(record.data_bin, flags_of(record), device) for model, record in records.items()}
    return relative_speeds(args.models[0], step_times(trainers, args.models[0], args.warm_up, args.steps))


def decoding(args: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Speed of beam search by model, on sentences of all lengths."""
    found = open_runs(args.runs, args.dataset, args.models)
    dataset = found[args.models[0]].task.dataset("test")
    numbers = [number for group in groups_by_length(dataset.src_sizes.tolist(), args.sample) for number in group]
    config = generation(args.dataset)
    translators = {name: translator(of, config, args.batch_size) for name, of in found.items()}
    return relative_times(translators, numbers, args.repeats)


def main() -> None:
    """Measure both, print and write them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument("--steps", type=int, default=40, help="timed training steps of each model (default: 40)")
    parser.add_argument("--warm-up", type=int, default=3, help="steps before timing (default: 3)")
    args = parser.parse_args()
    quiet_fairseq()
    relumt.register()
    checkpoints = checkpoints_of(args.runs, args.dataset, args.models)
    devices = {"training": benchmark_device(None), "decoding": benchmark_device("fp32")}
    if is_up_to_date(args.json, checkpoints, devices["training"]):
        return
    kinds = {"training": training(args, devices["training"]), "decoding": decoding(args)}
    beam = generation(args.dataset).beam
    how = {
        "training": f"training, {args.steps} steps",
        "decoding": f"decoding with beam {beam}, {args.batch_size} at a time, {10 * args.sample} sentences",
    }
    print("| model | " + " | ".join(kinds) + " |\n|---|---|---|")
    for model in args.models:
        of_kinds = (kind[model] for kind in kinds.values())
        print(f"| {model} | " + " | ".join(map(ratio, of_kinds)) + " |")
    if args.json:
        figures = {
            kind: {"what": how[kind], "baseline": args.models[0], "device": str(devices[kind]), "relative": relative}
            for kind, relative in kinds.items()
        }
        what = "training and decoding"
        write_results(args.json, what, args.models[0], devices["training"], {"checkpoints": checkpoints} | figures)


if __name__ == "__main__":
    with exit_on_user_error():
        main()
