"""Trains a run: compares it with its record, starts or resumes fairseq-train, and records how training ended.

A run is the same run as long as its provenance is: flags, data, vocabulary, initial weights, versions and device. The
same command resumes or reuses it. Anything else is refused with the differences, unless `force` is set.
"""

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from relumt.console import print_status
from relumt.errors import UserError, quote
from relumt.files import file_sha256
from relumt.plugin.checkpoints.folder import BEST_CHECKPOINT
from relumt.runs.dataset_config import load_dataset
from relumt.runs.environment import Device
from relumt.runs.launch import failure, locked, print_command, run_fairseq
from relumt.runs.provenance import provenance_differences, training_provenance, training_subsets
from relumt.runs.record import (
    RUN_RECORD,
    AcceptedChange,
    Divergence,
    Initialization,
    Provenance,
    RunRecord,
    find_record,
    recovery_advice,
    save_record,
)
from relumt.runs.run_checkpoints import best_checkpoint, has_checkpoints, require_numbered_checkpoints
from relumt.runs.run_config import FairseqCommand, RunConfig, resolve_run_config
from relumt.runs.training_log import find_divergence, has_finished, read_training_log

TRAIN_LOG = "train.log"
"""Name of fairseq-train's log in a run's folder."""


@dataclass(frozen=True)
class Request:
    """What a user asks of a run, beyond its name.

    Attributes:
        device: what trains and translates.
        data_bin: the data-bin, if the user named one.
        force: continue with other settings than the recorded ones, and record the change.
        one_by_one: translate documents that lost separators sentence by sentence.
        dry_run: print the commands instead of running them.
    """

    device: Device
    data_bin: Path | None = None
    force: bool = False
    one_by_one: bool = False
    dry_run: bool = False


def train(config: RunConfig, request: Request, extra_flags: list[str]) -> None:
    """Train a model, or resume its training; first the run from whose weights it starts, if the dataset names one.

    Raises:
        UserError: the run is impossible, or is not the recorded one.
        AttemptFailedError: fairseq-train failed for another reason than divergence.
    """
    flags = config.train_flags(extra_flags)
    require_numbered_checkpoints(flags, config.dataset_config.average_checkpoints)
    train_subset, *valid_subsets = training_subsets(flags)
    for subset in [train_subset] if "--disable-validation" in flags else [train_subset, *valid_subsets]:
        config.data_bin.require_subset(subset)
    found = find_record(config.folder)
    pretraining = find_pretraining(config, request.data_bin)
    if pretraining and not (found and found.has_ended) and not has_checkpoints(config.folder):
        require_shared_vocabulary(config, pretraining)
        train(pretraining, request, [])
    initialization = describe_initialization(pretraining)
    provenance = training_provenance(flags, config.data_bin, request.device, initialization)
    record = open_record(config, provenance, request.force)
    if report_end(config, record):
        return
    record = replace(record, extra_flags=extra_flags, data_bin=str(config.data_bin.folder))
    is_new = not has_checkpoints(config.folder)
    arguments = config.train_command(flags, request.device)
    if pretraining and is_new:
        arguments += initial_weight_flags(pretraining)
    command = FairseqCommand(config.folder / TRAIN_LOG, arguments)
    if request.dry_run:
        print_command("train", command)
        return
    with locked(config.folder):
        if pretraining and is_new and trained_record(pretraining).divergence:
            reason = f"the run on {pretraining.dataset}, from whose weights it would start, diverged"
            record = replace(record, divergence=Divergence(0, reason))
        save_record(config.folder, record)
        if report_end(config, record):
            return
        # A kill between the end of training and its record; fairseq would do one more update.
        is_same = found is not None and found.provenance == record.provenance
        is_finished = is_same and not is_new and has_finished(command.log)
        status = 0 if is_finished else run_fairseq("train", command, append=not is_new)
        record_end(config, record, command, status)


def open_record(config: RunConfig, provenance: Provenance, force: bool) -> RunRecord:
    """Return the record to train on: the one in the run's folder if its provenance is the same, else a new one.

    Raises:
        UserError: the provenance differs and `force` is not set, or there are checkpoints without a record.
    """
    record, started = find_record(config.folder), has_checkpoints(config.folder)
    if record is None and started:
        raise UserError(f"{config.folder}: checkpoints without {RUN_RECORD}; {recovery_advice(config.folder)}")
    if record is None or not (started or record.has_ended):
        now = datetime.now(UTC).isoformat(timespec="seconds")
        return RunRecord(config.dataset, config.model, config.seed, str(config.data_bin.folder), now, provenance)
    differences = provenance_differences(record.provenance, provenance)
    if not differences:
        return record
    record = accept_or_refuse(config, record, differences, force)
    return replace(
        record, provenance=provenance, training=None, divergence=None, length_penalty_search=None, evaluations={}
    )


def accept_or_refuse(config: RunConfig, record: RunRecord, differences: list[str], force: bool) -> RunRecord:
    """Return the record with the differences noted; raise UserError unless `force`."""
    if not force:
        raise UserError(
            f"{config.folder} was created with different settings: {'; '.join(differences)}; change RUNS or SEED, or "
            "set FORCE=1 to continue from its checkpoints, which drops its scores and marks the run in tables"
        )
    if any(differences == accepted.differences for accepted in record.accepted_changes):
        return record  # as by the search for --lenpen before the translation, or for another subset
    change = AcceptedChange(datetime.now(UTC).isoformat(timespec="seconds"), differences)
    return replace(record, accepted_changes=[*record.accepted_changes, change])


def record_end(config: RunConfig, record: RunRecord, command: FairseqCommand, status: int) -> None:
    """Record the summary of the log, or that training diverged.

    Raises:
        UserError, AttemptFailedError: fairseq-train failed for another reason.
    """
    if status == 0:
        record = replace(record, training=read_training_log(command.log))
    elif divergence := find_divergence(command.log):
        record = replace(record, divergence=divergence)
    else:
        raise failure("train", command, status)
    save_record(config.folder, record)
    if record.divergence:
        report_end(config, record)


def report_end(config: RunConfig, record: RunRecord) -> bool:
    """Return whether training is recorded as finished or diverged, and print it."""
    if found := record.divergence:
        print_status(f"{config.folder}: diverged after update {found.update} ({found.reason}); nothing to evaluate")
    elif record.training:
        print_status(f"{config.folder}: trained already")
    return record.has_ended


def find_pretraining(config: RunConfig, data_bin: Path | None) -> RunConfig | None:
    """Return the run from whose weights this one starts (`starts_from` in the dataset's file), None for new weights.

    Raises:
        UserError: `starts_from` names no dataset, or one that itself starts from another.
    """
    path, name = config.dataset_config.path, config.dataset_config.starts_from
    if not name:
        return None
    dataset = load_dataset(name, path.parent)
    if dataset is None or dataset.starts_from:
        problem = f"starts from {dataset.starts_from} itself" if dataset else f"is not a dataset in {path.parent}"
        raise UserError(f"{path}: starts_from = {quote(name)}, which {problem}; name another dataset")
    runs = config.folder.parents[2]
    if data_bin and config.dataset_config.data_bin != dataset.data_bin:
        raise UserError(f"DATA_BIN is set, but training starts from {name}, which has another data-bin; unset DATA_BIN")
    return resolve_run_config(name, config.model, config.seed, path.parents[1], runs, data_bin)


def require_shared_vocabulary(config: RunConfig, pretraining: RunConfig) -> None:
    """Raise UserError if the vocabularies or directions of two data-bins differ."""
    ours, theirs = (list(run.data_bin.dictionaries().items()) for run in (config, pretraining))  # source first
    if ours != theirs:
        raise UserError(
            f"{config.data_bin.folder} and {pretraining.data_bin.folder}, on which its training starts, differ in "
            "vocabulary or direction; let starts_from name a dataset with the same dictionaries"
        )


def describe_initialization(pretraining: RunConfig | None) -> Initialization:
    """Describe the initial weights; their checksum is unknown ("") if there is no checkpoint (any more)."""
    if pretraining is None:
        return Initialization()
    record = find_record(pretraining.folder)
    has_weights = record is not None and record.training is not None and has_checkpoints(pretraining.folder)
    sha256 = file_sha256(best_checkpoint(pretraining.folder)) if has_weights else ""
    if record is None:
        return Initialization(pretraining.dataset, sha256)
    flags = {name: value for name, value in record.provenance.flags.items() if name != "--seed"}
    return Initialization(pretraining.dataset, sha256, flags, record.provenance.data)


def initial_weight_flags(pretraining: RunConfig) -> list[str]:
    """Return fairseq-train's flags that load the weights of a run, which a dry run has not trained yet."""
    is_trained = has_checkpoints(pretraining.folder)
    weights = best_checkpoint(pretraining.folder) if is_trained else pretraining.checkpoints / BEST_CHECKPOINT
    return ["--finetune-from-model", str(weights)]


def trained_record(config: RunConfig) -> RunRecord:
    """Return the record of a run that has been trained or has diverged; raise UserError if there is none."""
    record = find_record(config.folder)
    if record is None or not record.has_ended:
        raise UserError(
            f"{config.folder}: training is not finished; run scripts/train.sh {config.dataset_argument} {config.model}"
        )
    return record
