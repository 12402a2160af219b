"""Train the one-layer models of [IN] Table 1; `scripts/reproduce.sh inhibitor_table1` also prints the table.

What is finished in --out is not trained again. Preset smoke trains on generated data, so its scores mean nothing. The
exit status is 2 if the request is invalid, and 1 if a training failed.
"""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from relumt.arguments import ArgumentParser, positive_integer, valid_path
from relumt.one_layer.experiment import Experiment
from relumt.one_layer.generated_data import WRITERS
from relumt.one_layer.settings import PRESETS, TASKS
from relumt.process import command_line

DATA_FILES = {
    "mnist": "MNIST's four idx files",
    "imdb": "the folder aclImdb, or train.tsv.gz and test.tsv.gz",
    "iam": "words.txt and the folder words",
}
"""Task -> what the folder of its data contains."""


def make_parser() -> ArgumentParser:
    """Return the parser of the command line."""
    parser = ArgumentParser(prog="python -m relumt.one_layer", description=__doc__, allow_abbrev=False)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--preset", default="small", choices=list(PRESETS), help="sizes and recipes (default: small)")
    parser.add_argument("--out", type=valid_path, required=True, help="folder for the results")
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=TASKS, help="which to train (default: all)")
    parser.add_argument("--repetitions", type=positive_integer, help="seeds per task (default: those of the preset)")
    for task, content in DATA_FILES.items():
        parser.add_argument(
            f"--{task}",
            type=valid_path,
            default=Path("data", task),
            metavar="FOLDER",
            help=f"{content} (default: data/{task})",
        )
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    """Check all tasks and read their data before training the first."""
    with command_line():
        arguments = make_parser().parse_args(argv)
        experiments = [make_experiment(task, arguments) for task in TASKS if task in arguments.tasks]
        for experiment in experiments:
            experiment.check()
        loaded = [(experiment, splits) for experiment in experiments if (splits := experiment.load())]
        for experiment, splits in loaded:
            experiment.run(splits)


def make_experiment(task: str, arguments: argparse.Namespace) -> Experiment:
    """Return the experiment that was asked for; preset smoke generates its data first."""
    plan = PRESETS[arguments.preset][task]
    if arguments.repetitions:
        plan = replace(plan, repetitions=arguments.repetitions)
    data = getattr(arguments, task, Path())
    if arguments.preset == "smoke" and task in WRITERS:
        data = arguments.out / "generated" / task
        WRITERS[task](data)
    return Experiment(task, plan, arguments.out, data)


if __name__ == "__main__":
    main()
