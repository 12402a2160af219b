"""Take one step of a run by itself; `relumt run` takes all of them.

A step that has something to run prints the path of its log and then the arguments of the fairseq command, one per
line. It prints nothing if its work is done already. The steps whose names begin with "check" write nothing.
"""

import argparse
import re
from collections.abc import Callable
from pathlib import Path

from relumt.arguments import valid_path
from relumt.console import print_status
from relumt.errors import UNPRINTABLE, UserError
from relumt.runs.environment import PRECISIONS, find_device
from relumt.runs.run_config import RunConfig, resolve_run_config
from relumt.runs.scored_analysis import is_analyzed
from relumt.runs.training_steps import (
    FairseqCommand,
    check_training,
    finish_training,
    record_divergence,
    report_divergence,
    start_training,
    started_record,
)

SEED = re.compile("[0-9]{1,10}")
MAX_SEED = 2**32 - 1
"""The largest seed that NumPy takes."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add one subcommand per step, all with the same arguments."""
    steps = parser.add_subparsers(dest="step", required=True, metavar="STEP")
    for name, (_, summary) in STEPS.items():
        add_run_arguments(steps.add_parser(name, help=summary, allow_abbrev=False))


def add_run_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that name a run and its settings."""
    parser.add_argument("--runs", type=valid_path, default=Path("runs"), help="folder of all runs (default: runs)")
    parser.add_argument(
        "--configs",
        type=valid_path,
        default=Path("configs"),
        help="folder with datasets/ and models/ (default: configs)",
    )
    parser.add_argument("--seed", default="1", help="random seed, part of the run's path (default: 1)")
    parser.add_argument("--data-bin", type=valid_path, help="data-bin (default: data-bin/DATASET)")
    parser.add_argument("--precision", help="fp32, bf16 or fp16 (default: fp16 on a GPU, fp32 on a CPU)")
    parser.add_argument(
        "--one-by-one", action="store_true", help="translate documents that lost separators sentence by sentence"
    )
    parser.add_argument(
        "--accept-mixed", action="store_true", help="continue in a changed environment, and record the change"
    )
    parser.add_argument(
        "words",
        nargs=argparse.REMAINDER,
        metavar="[--] DATASET MODEL",
        help="a name in configs/datasets, or the path of a data-bin; a file in configs/models, without .args; then "
        "further flags of the fairseq command. After -- nothing is an option of this command",
    )


def run(arguments: argparse.Namespace) -> None:
    """Run one step."""
    config = resolve_run(arguments)
    step, _ = STEPS[arguments.step]
    output = step(config, arguments)
    if output is not None:
        print(output)


def resolve_run(arguments: argparse.Namespace) -> RunConfig:
    """Look up the run that the arguments name, and put the flags that follow its names into `arguments.flags`.

    Raises:
        UserError: an argument is not valid, or there is no such dataset, data-bin or model.
    """
    words = arguments.words[1:] if arguments.words[:1] == ["--"] else arguments.words
    if len(words) < 2:
        raise UserError(f"expected DATASET and MODEL, found {words}; see --help")
    dataset, model, *arguments.flags = words
    if not SEED.fullmatch(arguments.seed) or int(arguments.seed) > MAX_SEED:
        raise UserError(f"SEED is '{arguments.seed}'; set it to a whole number from 0 to {MAX_SEED}")
    for name in ("runs", "configs", "data_bin"):
        path = getattr(arguments, name)
        if path is not None and (str(path).startswith("-") or UNPRINTABLE.search(str(path))):
            raise UserError(
                f"{name.upper()} is '{path}'; name a folder without control characters and '-' at its start"
            )
    if arguments.precision not in (None, *PRECISIONS):
        raise UserError(f"PRECISION is '{arguments.precision}'; set it to one of {', '.join(PRECISIONS)}")
    return resolve_run_config(
        dataset=dataset,
        model=model,
        seed=int(arguments.seed),
        configs=arguments.configs,
        runs=arguments.runs,
        data_bin=arguments.data_bin,
    )


def _check_training(config: RunConfig, arguments: argparse.Namespace) -> str | None:
    device = find_device(arguments.precision)
    runs = check_training(config, device, arguments.flags, arguments.accept_mixed, arguments.data_bin)
    return "\n".join(f"{run.dataset_argument}\n{run.folder}" for run in runs) or None


def _check_evaluation(config: RunConfig, arguments: argparse.Namespace) -> Path | None:
    from relumt.runs.evaluation_check import check_evaluation

    return check_evaluation(config, find_device(arguments.precision), arguments.flags, arguments.one_by_one)


def _start_training(config: RunConfig, arguments: argparse.Namespace) -> FairseqCommand | None:
    device = find_device(arguments.precision)
    return start_training(config, device, arguments.flags, arguments.accept_mixed)


def _start_search(config: RunConfig, arguments: argparse.Namespace) -> FairseqCommand | None:
    from relumt.runs.length_penalty_search import start_search

    return start_search(config, find_device(arguments.precision), arguments.flags, arguments.accept_mixed)


def _finish_search(config: RunConfig, _: argparse.Namespace) -> None:
    from relumt.runs.length_penalty_search import finish_search

    finish_search(config)


def _start_evaluation(config: RunConfig, arguments: argparse.Namespace) -> FairseqCommand | None:
    from relumt.runs.evaluation_steps import start_evaluation

    device = find_device(arguments.precision)
    return start_evaluation(config, device, arguments.flags, arguments.one_by_one, arguments.accept_mixed)


def _start_one_by_one(config: RunConfig, arguments: argparse.Namespace) -> FairseqCommand | None:
    from relumt.runs.evaluation_steps import start_one_by_one

    return start_one_by_one(config, find_device(arguments.precision), arguments.flags)


def _score(config: RunConfig, _: argparse.Namespace) -> None:
    from relumt.runs.evaluation_steps import score_pending

    score_pending(config)


def folder_to_analyze(config: RunConfig) -> Path | None:
    """Return the run's folder, None if the run diverged or the checkpoint that was scored is analyzed already.

    Raises:
        UserError: training was not started.
    """
    record = started_record(config)
    if report_divergence(config, record):
        return None
    if is_analyzed(config.folder, record):
        print_status(f"{config.folder}: analyzed already")
        return None
    return config.folder


Step = Callable[[RunConfig, argparse.Namespace], object]

STEPS: dict[str, tuple[Step, str]] = {
    "data-bin": (lambda config, _: config.data_bin.folder, "print the path of the run's data-bin"),
    "check-training": (
        _check_training,
        "before anything is written: check the run, and print DATASET and FOLDER of each run to train, two lines each",
    ),
    "start-training": (
        _start_training,
        "before training: record what the run is, or check that it is the recorded one",
    ),
    "finish-training": (lambda config, _: finish_training(config), "after training: record what its log says"),
    "record-divergence": (
        lambda config, _: record_divergence(config),
        "after fairseq-train failed: record that the run diverged, if that is why",
    ),
    "check-evaluation": (
        _check_evaluation,
        "before anything is written: check the flags of translation, and print the run's folder",
    ),
    "start-length-penalty-search": (
        _start_search,
        "before translation, if the dataset has length_penalties: translate the validation set",
    ),
    "finish-length-penalty-search": (_finish_search, "after that translation: choose the length penalty"),
    "start-evaluation": (
        _start_evaluation,
        "before translation: check checkpoint, vocabulary and environment, and record what will be translated",
    ),
    "start-one-by-one": (
        _start_one_by_one,
        "after translating documents: if separators were lost, translate sentences one by one",
    ),
    "score": (_score, "after translation: write the translations and record their scores"),
    "folder-to-analyze": (
        lambda config, _: folder_to_analyze(config),
        "print the run's folder if the checkpoint that was scored is not analyzed yet",
    ),
}
"""Step → the function that takes it, whose result is printed unless it is None, and its help."""
