"""Training and decoding speed of finished runs relative to one of them, alternating in one process.

    python benchmarks/speed.py RUNS DATASET --models softmax sparsemax rela_g --json RUNS/speed-DATASET.json

Training is that of benchmarks/training.py: whole steps on the same batches, one of each model in turn. Decoding is that
of benchmarks/decoding.py: the same sentences of the test set, every model in turn. Reported is the median of the first
model's time over each model's, with a 95 % interval from 10,000 bootstrap samples; above 1 is faster than the first.
"""

import argparse

from decoding import (
    CONFIGS,
    add_arguments,
    first_run,
    generation,
    groups_by_length,
    open_runs,
    relative_times,
    translator,
)
from measure import relative_to, write_figures
from training import build, flags_of, step_times

import relumt
from relumt.console import quiet_fairseq
from relumt.errors import one_line_errors
from relumt.runs.environment import find_device
from relumt.runs.flags import command_line, read_flags
from relumt.runs.record import load_record
from relumt.tables.speeds import ratio


def training(args: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Speed of training steps by model."""
    common = command_line(read_flags(CONFIGS / args.dataset / "train.args"))
    data_bins = [load_record(first_run(args.runs, args.dataset, model))["data_bin"] for model in args.models]
    trainers = {
        model: build(data_bin, [*common, *flags_of(model)])
        for model, data_bin in zip(args.models, data_bins, strict=True)
    }
    return relative_to(args.models[0], step_times(trainers, args.models[0], args.warm_up, args.steps))


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
    kinds = {"training": training(args), "decoding": decoding(args)}
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
        device = str(find_device(None))
        figures = {
            kind: {"what": how[kind], "baseline": args.models[0], "device": device, "relative": relative}
            for kind, relative in kinds.items()
        }
        write_figures(args.json, "training and decoding", args.models[0], figures)


if __name__ == "__main__":
    with one_line_errors():
        main()
