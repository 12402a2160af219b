"""Train a run, translate and score its test set, and analyze it: what the scripts in scripts/ call.

DATASET and MODEL may be followed by flags: of fairseq-train with --train, else of fairseq-generate. Stages that are
complete are skipped.
"""

import argparse
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from relumt.arguments import MAX_INTEGER, valid_path
from relumt.commands import analyze as analyze_command
from relumt.errors import UNPRINTABLE, AttemptFailedError, UserError
from relumt.runs.environment import PRECISIONS, Device, find_device
from relumt.runs.evaluation_check import check_evaluation, is_scored, require_separator
from relumt.runs.evaluation_steps import score_pending, start_evaluation, start_one_by_one
from relumt.runs.length_penalty_search import finish_search, start_search
from relumt.runs.record import find_record
from relumt.runs.run_config import FairseqCommand, RunConfig, resolve_run_config
from relumt.runs.run_lock import RunLock
from relumt.runs.scored_analysis import needs_analysis
from relumt.runs.step_processes import preload_fairseq, run_fairseq, run_in_child
from relumt.runs.training_results import finish_training, record_divergence
from relumt.runs.training_steps import check_training, start_training

SEED = re.compile("[0-9]{1,10}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the stages and the arguments that name a run."""
    parser.add_argument("--train", action="store_true", help="train the model, or resume training")
    parser.add_argument("--evaluate", action="store_true", help="translate the test set and score it")
    parser.add_argument("--analyze", action="store_true", help="measure attention and feed-forward layers")
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
    """Go through the stages, whose steps have processes of their own.

    Raises:
        UserError: no stage is named.
    """
    if not (arguments.train or arguments.evaluate or arguments.analyze):
        raise UserError("expected at least one stage, found none; give --train, --evaluate or --analyze")
    config, flags = resolve_run(arguments)
    generate_flags = [] if arguments.train else flags
    if arguments.train and arguments.evaluate and arguments.one_by_one:
        require_separator(config, config.train_flags(flags))  # before training, which can take days
    if has_work(config, arguments, generate_flags):
        preload_fairseq()
    device = run_in_child(find_device, arguments.precision)
    settings = StageSettings(device, arguments.data_bin, arguments.one_by_one, arguments.accept_mixed)
    lock = RunLock()
    if arguments.train:
        train(config, settings, flags, lock)
    if arguments.evaluate:
        evaluate(config, settings, generate_flags, lock)
    if arguments.analyze:
        analyze(config, settings.data_bin, lock)


def resolve_run(arguments: argparse.Namespace) -> tuple[RunConfig, list[str]]:
    """Look up the run that the arguments name; return it, and the flags of the fairseq command that follow its names.

    Raises:
        UserError: an argument is not valid, or there is no such dataset, data-bin or model.
    """
    words = arguments.words[1:] if arguments.words[:1] == ["--"] else arguments.words
    if len(words) < 2:
        raise UserError(f"expected DATASET and MODEL, found {words}; see --help")
    dataset, model, *flags = words
    if not SEED.fullmatch(arguments.seed) or int(arguments.seed) > MAX_INTEGER:
        raise UserError(f"SEED is '{arguments.seed}'; set it to a whole number from 0 to {MAX_INTEGER}")
    for name in ("runs", "configs", "data_bin"):
        path = getattr(arguments, name)
        if path is not None and (str(path).startswith("-") or UNPRINTABLE.search(str(path))):
            raise UserError(
                f"{name.upper()} is '{path}'; name a folder without control characters and '-' at its start"
            )
    if arguments.precision not in (None, *PRECISIONS):
        raise UserError(f"PRECISION is '{arguments.precision}'; set it to one of {', '.join(PRECISIONS)}")
    config = resolve_run_config(
        dataset=dataset,
        model=model,
        seed=int(arguments.seed),
        configs=arguments.configs,
        runs=arguments.runs,
        data_bin=arguments.data_bin,
    )
    return config, flags


def has_work(config: RunConfig, arguments: argparse.Namespace, generate_flags: list[str]) -> bool:
    """Return whether a stage will need fairseq, as far as run.json tells; the flags are those of fairseq-generate.

    Raises:
        UserError: run.json is not valid, or a flag is one that the scripts set.
    """
    record = find_record(config.folder)
    if record is None or not record.has_ended:
        return arguments.train
    return arguments.evaluate and not (record.divergence or is_scored(config, record, generate_flags))


@dataclass(frozen=True)
class StageSettings:
    """What all stages of a run have in common.

    Attributes:
        device: what it is trained and translated on.
        data_bin: the data-bin, if the user named one.
        one_by_one: translate documents that lost separators sentence by sentence.
        accept_mixed: continue in a changed environment, and record the change.
    """

    device: Device
    data_bin: Path | None
    one_by_one: bool
    accept_mixed: bool


def train(config: RunConfig, settings: StageSettings, flags: list[str], lock: RunLock) -> None:
    """Train a model, first on the datasets that the training starts from.

    Everything is checked before anything is written.
    """
    runs = run_in_child(check_training, config, settings.device, flags, settings.accept_mixed, settings.data_bin)
    if not runs:
        return
    lock.acquire(config.folder)
    for pretraining in runs[:-1]:
        lock.wait_for(pretraining.folder)
        train_locked(pretraining, settings, [])
        lock.release(pretraining.folder)
    train_locked(config, settings, flags)


def train_locked(config: RunConfig, settings: StageSettings, flags: list[str]) -> None:
    """Train one model, and record how training ended.

    Raises:
        AttemptFailedError: training failed for another reason than divergence.
    """
    command = run_in_child(start_training, config, settings.device, flags, settings.accept_mixed)
    if command is None:
        return
    status = run_fairseq(command, "train", append=True)
    attempt(record_divergence if status else finish_training, config)


def evaluate(config: RunConfig, settings: StageSettings, flags: list[str], lock: RunLock) -> None:
    """Choose a length penalty if the dataset leaves it open, translate the test set and score it."""
    if not run_in_child(check_evaluation, config, settings.device, flags, settings.one_by_one):
        return
    lock.acquire(config.folder)
    command = run_in_child(start_search, config, settings.device, flags, settings.accept_mixed)
    if command is not None:
        generate(command)
        attempt(finish_search, config)
    command = run_in_child(start_evaluation, config, settings.device, flags, settings.one_by_one, settings.accept_mixed)
    if command is None:
        return
    generate(command)
    if settings.one_by_one:
        command = run_in_child(start_one_by_one, config, settings.device, flags)
        if command is not None:
            generate(command, append=True)
    attempt(score_pending, config)


def generate(command: FairseqCommand, append: bool = False) -> None:
    """Run fairseq-generate; raises AttemptFailedError if it fails."""
    if run_fairseq(command, "generate", append=append):
        raise AttemptFailedError(f"fairseq-generate failed; see the end of {command.log}")


def analyze(config: RunConfig, data_bin: Path | None, lock: RunLock) -> None:
    """Measure what the trained model does, unless its analysis is complete.

    Args:
        config: the run.
        data_bin: the data-bin, None for that of training.
        lock: the lock of this process.
    """
    if needs_analysis(config):
        lock.acquire(config.folder)
        attempt(measure_run, config.folder, data_bin)


def measure_run(folder: Path, data_bin: Path | None) -> None:
    """Write the numbers of `relumt analyze` to the run's analysis.json; `data_bin` is None for that of training."""
    parser = argparse.ArgumentParser()
    analyze_command.add_arguments(parser)
    data = ["--data", str(data_bin)] if data_bin else []
    analyze_command.run(parser.parse_args(["--numbers-only", "--out", str(folder), *data, "--", str(folder)]))


def attempt(step: Callable[..., None], *arguments: object) -> None:
    """Take a step whose failure is no invalid request: raises SystemExit with status 1 if it fails."""
    try:
        run_in_child(step, *arguments)
    except SystemExit:
        raise SystemExit(1) from None
