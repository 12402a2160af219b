"""Train a run, translate and score its test set, and analyze it: what the scripts in scripts/ call.

DATASET and MODEL may be followed by flags: of fairseq-train with --train, else of fairseq-generate. Stages that are
complete are skipped. Each command of fairseq is printed as it starts.
"""

import argparse
from pathlib import Path

from relumt.analysis.scored_analysis import needs_analysis
from relumt.arguments import whole_number
from relumt.commands import analyze as analyze_command
from relumt.errors import UserError
from relumt.runs.environment import PRECISIONS, find_device
from relumt.runs.evaluation import evaluate, print_commands
from relumt.runs.flags import join_flag_values
from relumt.runs.record import find_record
from relumt.runs.run_config import RunConfig, resolve_run_config
from relumt.runs.training import Request, train


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the stages and the arguments that name a run."""
    parser.add_argument("--train", action="store_true", help="train the model, or resume training")
    parser.add_argument("--evaluate", action="store_true", help="translate the test set and score it")
    parser.add_argument("--analyze", action="store_true", help="measure attention and feed-forward layers")
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="folder of all runs (default: runs)")
    parser.add_argument(
        "--configs",
        type=Path,
        default=Path("configs"),
        help="folder with datasets/ and models.toml (default: configs)",
    )
    parser.add_argument("--seed", type=whole_number, default=1, help="random seed, part of the run's path (default: 1)")
    parser.add_argument("--data-bin", type=Path, help="data-bin (default: data-bin/DATASET)")
    parser.add_argument("--precision", choices=PRECISIONS, help="of training (default: fp16 on a GPU, fp32 on a CPU)")
    parser.add_argument(
        "--one-by-one", action="store_true", help="translate documents that lost separators sentence by sentence"
    )
    parser.add_argument(
        "--force", action="store_true", help="continue with other settings than the recorded ones, and record that"
    )
    parser.add_argument("--dry-run", action="store_true", help="print fairseq's commands instead of running them")
    parser.add_argument(
        "words",
        nargs=argparse.REMAINDER,
        metavar="[--] DATASET MODEL",
        help="a name in configs/datasets, or the path of a data-bin; a name in configs/models.toml; then further flags "
        "of the fairseq command. After -- nothing is an option of this command",
    )


def run(arguments: argparse.Namespace) -> None:
    """Go through the stages.

    Raises:
        UserError: no stage is named, or a stage is impossible.
    """
    if not (arguments.train or arguments.evaluate or arguments.analyze):
        raise UserError("expected at least one stage, found none; give --train, --evaluate or --analyze")
    words = arguments.words[1:] if arguments.words[:1] == ["--"] else arguments.words
    dry_run = arguments.dry_run or "--dry-run" in words
    words = [word for word in words if word != "--dry-run"]
    if len(words) < 2:
        raise UserError(f"expected DATASET and MODEL, found {words}; see --help")
    dataset, model, *flags = words
    config = resolve_run_config(dataset, model, arguments.seed, arguments.configs, arguments.runs, arguments.data_bin)
    device = find_device(arguments.precision)
    request = Request(device, arguments.data_bin, arguments.force, arguments.one_by_one, dry_run)
    generate_flags = [] if arguments.train else flags
    if arguments.train:
        train(config, request, flags)
    if arguments.evaluate and dry_run and not is_trained(config):
        trained = config.train_flags(flags if arguments.train else [])
        print_commands(config, request, config.generate_flags(generate_flags, join_flag_values(trained)))
    elif arguments.evaluate:
        evaluate(config, request, generate_flags)
    if arguments.analyze and not dry_run and needs_analysis(config):
        analyze(config, arguments.data_bin)


def is_trained(config: RunConfig) -> bool:
    """Return whether the record says that training has ended."""
    record = find_record(config.folder)
    return record is not None and record.has_ended


def analyze(config: RunConfig, data_bin: Path | None) -> None:
    """Write the numbers of `relumt analyze` to the run's analysis.json; `data_bin` is None for that of training."""
    parser = argparse.ArgumentParser()
    analyze_command.add_arguments(parser)
    data = ["--data", str(data_bin)] if data_bin else []
    folder = str(config.folder)
    analyze_command.run(parser.parse_args(["--numbers-only", "--out", folder, *data, "--", folder]))
