"""Write and check run.json; the steps of scripts/train.sh and scripts/evaluate.sh.

A step that has something to run prints the path of its log and then the arguments of fairseq's command, one a
line; it prints nothing where the work is done already.
"""

import argparse
import shlex
import shutil
from dataclasses import asdict
from pathlib import Path

from relumt.console import print_status
from relumt.errors import UserError
from relumt.runs import evaluation
from relumt.runs.analysis_record import is_analyzed
from relumt.runs.environment import find_device
from relumt.runs.flags import Flags
from relumt.runs.provenance import NEW_WEIGHTS, training_fingerprint
from relumt.runs.record import (
    Record,
    load_record,
    open_for_training,
    save_record,
    trained_record,
    unfinished_record,
    updates_so_far,
)
from relumt.runs.run_config import Plan, has_checkpoints, plan_run
from relumt.runs.start import first_of, start_of
from relumt.runs.training_log import START, divergence, read_training_log

PRECISIONS = ("fp32", "bf16", "fp16")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One sub-command a step, all with the same arguments."""
    steps = parser.add_subparsers(dest="step", required=True, metavar="STEP")
    for name, step in STEPS.items():
        step_parser = steps.add_parser(name, help=step.__doc__.partition("\n")[0])
        step_parser.add_argument("--runs", type=Path, default=Path("runs"), help="folder of all runs (default: runs)")
        step_parser.add_argument("--configs", type=Path, default=Path("configs"), help="has datasets/ and models/")
        step_parser.add_argument("--seed", default="1", help="random seed, part of the run's folder (default: 1)")
        step_parser.add_argument("--data-bin", type=Path, help="data-bin (default: data-bin/DATASET)")
        step_parser.add_argument("--precision", help="fp32, bf16 or fp16 (default: fp16 on a GPU, fp32 on a CPU)")
        step_parser.add_argument("--one-by-one", action="store_true", help="sentences, where separators were lost")
        step_parser.add_argument("--accept-mixed", action="store_true", help="go on in another environment; recorded")
        step_parser.add_argument("dataset", help="a name in configs/datasets, or the path of a data-bin")
        step_parser.add_argument("model", help="a name in configs/models")
        step_parser.add_argument("flags", nargs=argparse.REMAINDER, help="further flags of the fairseq command")


def run(arguments: argparse.Namespace) -> None:
    """Run one step."""
    if not arguments.seed.isdecimal():
        raise UserError(f"SEED is '{arguments.seed}'; it must be a whole number from 0")
    if arguments.precision not in (None, *PRECISIONS):
        raise UserError(f"PRECISION is '{arguments.precision}'; it must be one of {', '.join(PRECISIONS)}")
    plan = plan_run(
        dataset=arguments.dataset,
        model=arguments.model,
        seed=int(arguments.seed),
        configs=arguments.configs,
        runs=arguments.runs,
        data_bin=arguments.data_bin,
    )
    STEPS[arguments.step](plan, arguments)


def folder(plan: Plan, _: argparse.Namespace) -> None:
    """Print the run's folder, once everything that it is named by is known to be there."""
    print(plan.folder)


def data_bin(plan: Plan, _: argparse.Namespace) -> None:
    """Print the path of the run's data-bin."""
    print(plan.data_bin.folder)


def starts_from(plan: Plan, arguments: argparse.Namespace) -> None:
    """Print the dataset on which the model is to be trained first; an empty line where there is none, or no need.

    What makes the run impossible is said here, before the other is trained for nothing.
    """
    ended = {"training", "diverged"} & set(load_record(plan.folder) or {})
    begun = ended or has_checkpoints(plan.folder)
    first = None if begun else first_of(plan, arguments.data_bin, arguments.flags)
    print(first.dataset if first else "")


def start(plan: Plan, arguments: argparse.Namespace) -> None:
    """Before training: record what the run is, or check that it is the one recorded."""
    device = find_device(arguments.precision)
    flags = plan.train_flags(arguments.flags)
    fingerprint = training_fingerprint(flags, plan.data_bin, device)
    begins = start_of(plan)
    fingerprint["start"] = begins.fingerprint() if begins else NEW_WEIGHTS
    record = open_for_training(plan, fingerprint, device, arguments.accept_mixed) | {"given": arguments.flags}
    if "training" in record:
        print_status(f"{plan.folder}: trained already")
        return
    so_far = updates_so_far(plan)
    to_begin = []
    if begins and begins.diverged:
        record["diverged"] = {"update": 0, "reason": f"as the run on {begins.dataset} did, from which it would start"}
    elif begins and not so_far:
        to_begin = begins.flags()
    save_record(plan.folder, record)
    if has_diverged(plan, record):
        return
    if has_all_updates(so_far, flags):
        trained(plan, arguments)
        return
    command, log = plan.train_command(flags, device) + to_begin, plan.folder / "train.log"
    with log.open("a", encoding="utf-8") as file:
        file.write(f"{START} {shlex.join(command)}\n")
    print(log, *command, sep="\n")


def has_all_updates(so_far: int, flags: Flags) -> bool:
    """Whether so many updates are all that were asked for; fairseq would make one more to see it."""
    most = "".join(flags.get("--max-update", []))
    return most.isdecimal() and 0 < int(most) <= so_far


def trained(plan: Plan, _: argparse.Namespace) -> None:
    """After training: record what its log says."""
    record = unfinished_record(plan)
    log = read_training_log(plan.folder / "train.log")
    save_record(plan.folder, record | {"training": asdict(log)})


def stopped(plan: Plan, _: argparse.Namespace) -> None:
    """After fairseq-train failed: record that the run diverged, if that is why."""
    record, log = unfinished_record(plan), plan.folder / "train.log"
    found = divergence(log)
    if found is None:
        raise UserError(f"{plan.folder}: fairseq-train failed; the end of {log} says why")
    save_record(plan.folder, record | {"diverged": found})
    has_diverged(plan, record | {"diverged": found})


def has_diverged(plan: Plan, record: Record) -> bool:
    """Whether the run is known to have diverged; says so."""
    found = record.get("diverged")
    if found:
        print_status(
            f"{plan.folder}: diverged after update {found['update']} ({found['reason']}); there is nothing to evaluate"
        )
    return bool(found)


def evaluate(plan: Plan, arguments: argparse.Namespace) -> None:
    """Before translation: check the checkpoint, its vocabulary and the environment, and record what is begun."""
    if has_diverged(plan, load_record(plan.folder) or {}):
        return
    record = trained_record(plan)
    flags = plan.generate_flags(arguments.flags, record["fingerprint"]["flags"])
    device = find_device(arguments.precision)
    if evaluation.outlives_its_checkpoint(plan, record, flags):
        print_status(f"{plan.folder}: evaluated already, and its checkpoints deleted")
        return
    begun = evaluation.describe_evaluation(plan, flags, device) | {"one_by_one": arguments.one_by_one}
    if evaluation.is_evaluated(record, begun):
        print_status(f"{plan.folder}: {begun['subset']} evaluated already")
        return
    save_record(plan.folder, evaluation.begin(plan, record, begun, arguments.accept_mixed))
    shutil.rmtree(evaluation.of_sentences(plan), ignore_errors=True)
    command = plan.generate_command(flags, plan.checkpoints / begun["checkpoint"], plan.folder, device)
    print(evaluation.generate_log(plan, begun), *command, sep="\n")


def one_by_one(plan: Plan, arguments: argparse.Namespace) -> None:
    """After translating documents: where one lost a separator, translate sentences one by one."""
    record = trained_record(plan)
    lost = evaluation.lost_separators(plan, record)
    if not lost:
        return
    print_status(
        f"{plan.folder}: {lost} chunks came back with another number of separators; translating sentences one by one"
    )
    begun = evaluation.begun(plan, record)
    flags = plan.generate_flags(arguments.flags, record["fingerprint"]["flags"]) | {"--document-length": ["1"]}
    checkpoint, folder = plan.checkpoints / begun["checkpoint"], evaluation.of_sentences(plan)
    print(evaluation.generate_log(plan, begun))
    print(*plan.generate_command(flags, checkpoint, folder, find_device(arguments.precision)), sep="\n")


def score(plan: Plan, _: argparse.Namespace) -> None:
    """After translation: write the translations and record their scores."""
    record = trained_record(plan)
    save_record(plan.folder, evaluation.without_scores(record, evaluation.begun(plan, record)["subset"]))
    record = evaluation.finish(plan, record)
    save_record(plan.folder, record)
    for subset, of_subset in record["evaluation"].items():
        for result in of_subset["scores"].values():
            print_status(f"{subset}: {result['detail']}  {result['signature']}")


def to_analyze(plan: Plan, _: argparse.Namespace) -> None:
    """Print the run's folder if there is no analysis of the checkpoint that was scored."""
    record = unfinished_record(plan)
    if has_diverged(plan, record):
        return
    if is_analyzed(plan.folder, record):
        print_status(f"{plan.folder}: analysed already")
    else:
        print(plan.folder)


STEPS = {
    "folder": folder,
    "data-bin": data_bin,
    "starts-from": starts_from,
    "start": start,
    "trained": trained,
    "stopped": stopped,
    "evaluate": evaluate,
    "one-by-one": one_by_one,
    "score": score,
    "to-analyze": to_analyze,
}
