"""Measure the training and decoding speed of finished runs relative to one of them, in alternating order.

    python benchmarks/train_decode_speed.py RUNS DATASET --models softmax rela_g --json RUNS/speed-DATASET.json

Training is measured as in training.py: whole steps on the same batches, one of each model in turn, each in a process of
its own, with the flags that the runs were trained with, in fp16 on a GPU. Decoding is measured as in decoding_speed.py:
all models in turn translate the same test sentences. Reported is the median of the first model's time over each
model's, with a 95% interval from six repeats on; above 1 is faster than the first.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

import torch
from batches import Reference
from decoding_speed import (
    CONFIGS,
    add_arguments,
    decoding_speeds,
    describe_inputs,
    first_run,
    generation_config,
    groups_by_length,
    load_models,
    make_translator,
)
from measurement import Workload, fairseq_command, measure, relative_seconds, relumt_arguments
from timing import Speeds, benchmark_device, is_up_to_date, print_origin, write_results

import relumt
from relumt.arguments import ArgumentParser, positive_integer, whole_number
from relumt.errors import exit_on_user_error
from relumt.fairseq_version import prepare_fairseq_import
from relumt.papers.speeds import format_ratio
from relumt.runs.dataset_config import require_dataset, require_model
from relumt.runs.environment import Device, describe_revision
from relumt.runs.flags import command_line, join_flag_values
from relumt.runs.record import RunRecord, load_record


def recorded_flags(record: RunRecord) -> list[str]:
    """Return the flags that a run was trained with.

    run.json joins the values of a flag into one string. Where configs/ has the same values, they are taken from there,
    since a value may contain a space; otherwise the string is split at spaces.
    """
    configured = require_dataset(record.dataset, CONFIGS).train | require_model(record.model, CONFIGS.parent)
    as_read, recorded = join_flag_values(configured), record.provenance.flags
    return command_line(
        {name: configured[name] if as_read.get(name) == text else text.split() for name, text in recorded.items()}
    )


def measure_training(args: argparse.Namespace, device: Device) -> Speeds:
    """Return the speed of training steps by model; all train on the batches of the first."""
    records = {model: load_record(first_run(args.runs, args.dataset, model)) for model in args.models}
    arguments = {model: relumt_arguments(record.data_bin, recorded_flags(record)) for model, record in records.items()}
    end = args.warm_up + args.steps
    warm_up, steps = range(args.warm_up), range(args.warm_up, end)
    workload = Workload(warm_up, steps, translations=0, threads=torch.get_num_threads())
    with tempfile.TemporaryDirectory() as folder:
        batches = Path(folder) / "batches.pt"
        Reference(arguments[args.models[0]]).write_batches(batches, end, 0)
        commands = {
            model: fairseq_command(batches, [*given, *device.train_flags()]) for model, given in arguments.items()
        }
        measured = measure(commands, workload)
    return relative_seconds(args.models[0], {model: system.training for model, system in measured.items()})


def measure_decoding(args: argparse.Namespace) -> Speeds:
    """Return the speed of beam search by model, on sentences of all lengths."""
    models = load_models(args.runs, args.dataset, args.models)
    dataset = models[args.models[0]].task.dataset("test")
    indices = [index for group in groups_by_length(dataset.src_sizes.tolist(), args.sample) for index in group]
    config = generation_config(args.dataset)
    translators = {name: make_translator(loaded, config, args.batch_size) for name, loaded in models.items()}
    return decoding_speeds(translators, indices, args.repeats)


def main() -> None:
    """Measure both, print the table and write the JSON file."""
    parser = ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument(
        "--steps", type=positive_integer, default=40, help="timed training steps per model (default: 40)"
    )
    parser.add_argument("--warm-up", type=whole_number, default=3, help="steps before timing (default: 3)")
    args = parser.parse_args()
    prepare_fairseq_import()
    relumt.register()
    inputs = describe_inputs(args)
    devices = {"training": benchmark_device(None), "decoding": benchmark_device("fp32")}
    if is_up_to_date(args.json, inputs, devices["training"]):
        return
    speeds = {"training": measure_training(args, devices["training"]), "decoding": measure_decoding(args)}
    beam = generation_config(args.dataset).beam
    what = {
        "training": f"training, {args.steps} steps",
        "decoding": f"decoding with beam {beam}, {args.batch_size} at a time, {10 * args.sample} sentences",
    }
    print("| model | " + " | ".join(speeds) + " |\n|---|---|---|")
    for model in args.models:
        cells = (format_ratio(by_model[model]) for by_model in speeds.values())
        print(f"| {model} | " + " | ".join(cells) + " |")
    print_origin()
    if args.json:
        results: dict[str, Any] = {"inputs": inputs} | {
            kind: {
                "what": what[kind],
                "baseline": args.models[0],
                "device": str(devices[kind]),
                "revision": describe_revision(),
                "relative": relative,
            }
            for kind, relative in speeds.items()
        }
        write_results(args.json, "training and decoding", args.models[0], devices["training"], results)


if __name__ == "__main__":
    with exit_on_user_error():
        main()
