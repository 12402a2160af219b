"""Trains a run: compares it with its record, starts or resumes fairseq-train, and records how training ended.

A run is the same run as long as its provenance is: flags, data, vocabulary, initial weights, versions and device. The
same command resumes or reuses it. Anything else is refused with the differences, unless `force` is set.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from relumt.errors import UserError, print_status, quote
from relumt.files import file_sha256
from relumt.plugin.checkpoints.folder import BEST_CHECKPOINT
from relumt.process import SAMPLES_VARIABLE
from relumt.runs.data_bin import DataBin, keep_preparation
from relumt.runs.dataset_config import load_dataset, require_numbered_checkpoints
from relumt.runs.environment import Device, current_environment
from relumt.runs.flags import Flags, differences, join_flag_values
from relumt.runs.launch import (
    FairseqCommand,
    failure,
    locked,
    print_command,
    require_valid_arguments,
    run_fairseq,
)
from relumt.runs.progress import last_value
from relumt.runs.record import (
    PREPARATION,
    RECOVERY_ADVICE,
    RUN_RECORD,
    AcceptedChange,
    Divergence,
    Initialization,
    Provenance,
    RunRecord,
    find_record,
    save_record,
)
from relumt.runs.run_config import (
    FAIRSEQ_POSITIONS,
    MAX_POSITIONS,
    POST_PROCESS,
    TRUNCATE,
    RunConfig,
    best_checkpoint,
    has_checkpoints,
    resolve_run_config,
)
from relumt.runs.training_log import read_training_log

TRAIN_LOG = "train.log"
"""Name of fairseq-train's log in a run's folder."""


@dataclass(frozen=True)
class Request:
    """What a user asks of a run, beyond its name.

    Attributes:
        device: what trains and translates.
        data_bin: the data-bin, if the user named one.
        force: continue with other settings than the recorded ones, and record the change.
        dry_run: print the commands instead of running them.
        is_verbose: print all that fairseq does, not only its progress.
        waits: wait for another process that works on the run, instead of refusing.
    """

    device: Device
    data_bin: Path | None = None
    force: bool = False
    dry_run: bool = False
    is_verbose: bool = False
    waits: bool = False


def train(config: RunConfig, request: Request, extra_flags: list[str]) -> None:
    """Train a model, or resume its training; first the run from whose weights it starts, if the dataset names one.

    Raises:
        UserError: the run is impossible, or is not the recorded one.
        AttemptFailedError: fairseq-train failed for another reason than divergence.
    """
    flags = config.train_flags(extra_flags)
    require_numbered_checkpoints(flags, config.dataset_config.average_checkpoints)
    training, *validated = training_subsets(flags)
    validated = [] if "--disable-validation" in flags else validated
    for subset in (training, *validated):
        config.data_bin.require_subset(subset)
    require_readable(config, flags, validated)
    found, is_new = find_record(config.folder), not has_checkpoints(config.folder)
    pretraining = find_pretraining(config, request.data_bin)
    if pretraining and is_new and not (found and found.has_ended):
        origin = f"{pretraining.data_bin.folder}, on which its training starts; let starts_from name another dataset"
        require_vocabulary(config.data_bin, pretraining.data_bin.dictionaries(), origin)
        train(pretraining, replace(request, waits=True), [])  # other runs may start from it, too
    provenance = training_provenance(flags, config.data_bin, request.device, describe_initialization(pretraining))
    arguments = config.train_command(flags, request.device)
    record = open_record(config, provenance, arguments, request.force)
    if report_end(config, record):
        return
    record = replace(record, extra_flags=extra_flags, data_bin=config.recorded_data_bin)
    if pretraining and is_new:
        is_trained = has_checkpoints(pretraining.folder)  # not before a dry run
        weights = best_checkpoint(pretraining.folder) if is_trained else pretraining.checkpoints / BEST_CHECKPOINT
        arguments += ["--finetune-from-model", str(weights)]
    subwords = {SAMPLES_VARIABLE: POST_PROCESS.get(config.data_bin.bpe, "none")}
    command = FairseqCommand(config.folder / TRAIN_LOG, arguments, request.is_verbose, subwords)
    if request.dry_run:
        print_command("train", command)
        return
    with locked(config.folder, request.waits):
        is_current = find_record(config.folder) == found
        if is_current:
            if pretraining and is_new and trained_record(pretraining).divergence:
                reason = f"the run on {pretraining.dataset}, from whose weights it would start, diverged"
                record = replace(record, divergence=Divergence(0, reason))
            keep_preparation(config.folder / PREPARATION, config.data_bin)
            save_record(config.folder, record)
            if not report_end(config, record):
                run_training(config, record, found, command)
    if not is_current:  # another process has trained it meanwhile
        train(config, request, extra_flags)


def run_training(config: RunConfig, record: RunRecord, found: RunRecord | None, command: FairseqCommand) -> None:
    """Run fairseq-train, unless the record that was found misses only its end, and record how it ended."""
    is_new = not has_checkpoints(config.folder)
    # A kill between the end of training and its record; fairseq would do one more update.
    is_same = found is not None and found.provenance == record.provenance
    is_finished = is_same and not is_new and read_training_log(command.log).has_finished
    status = 0 if is_finished else run_fairseq("train", command, append=not is_new)
    log = read_training_log(command.log)
    if status and not log.divergence:
        raise failure("train", command, status)
    if not status and not log.summary:
        raise UserError(
            f"{command.log}: has no finished epoch or validation; restore it if it was shortened, or delete "
            f"{config.folder} and train again"
        )
    record = replace(record, divergence=log.divergence) if status else replace(record, training=log.summary)
    save_record(config.folder, record)
    if record.divergence:
        report_end(config, record)
    softmax_epochs = last_value(command.arguments, "--attention-softmax-epochs")
    if record.training and record.training.epochs <= softmax_epochs:
        print_status(f"{config.folder}: softmax trained all epochs; choose fewer for --attention-softmax-epochs")


def training_provenance(
    flags: Flags, data_bin: DataBin, device: Device, initialization: Initialization | None = None
) -> Provenance:
    """Describe a training that would start now; without `initialization` it starts from new weights.

    Raises:
        UserError: the flags name a subset that no data-bin can have.
    """
    return Provenance(
        flags=join_flag_values(flags),
        data={subset: data_bin.training_checksum(subset) for subset in training_subsets(flags)},
        dictionaries=data_bin.dictionaries(),
        initialization=initialization or Initialization(),
        environment=current_environment(device),
    )


def training_subsets(flags: Flags) -> list[str]:
    """Return the subsets that training reads: fairseq takes one to train on, and any number to validate on."""
    train, valid = (",".join(flags.get(name, [])) for name in ("--train-subset", "--valid-subset"))
    return [train or "train", *(valid or "valid").split(",")]


def require_readable(config: RunConfig, flags: Flags, validated: list[str]) -> None:
    """Raise UserError if a sentence to validate on or to translate is too long for the model.

    fairseq leaves such sentences out of training, but stops at the others, after an epoch or after training.
    """
    translated = config.dataset_config.generate.get("--gen-subset", ["test"])
    subsets = translated if "--skip-invalid-size-inputs-valid-test" in flags else [*validated, *translated]
    for subset in filter(config.data_bin.has_subset, subsets):
        for flag, (length, number) in zip(MAX_POSITIONS, config.data_bin.longest(subset), strict=True):
            allowed = " ".join(flags.get(flag, [FAIRSEQ_POSITIONS]))
            is_truncated = TRUNCATE in flags and flag == MAX_POSITIONS[0]
            if allowed.isdecimal() and int(allowed) < length and not is_truncated:
                raise UserError(
                    f"{config.data_bin.folder}: sentence {number} of {subset} has {length} tokens, but {flag} is "
                    f"{allowed}; give {flag} {length}, or {TRUNCATE} if only sources are too long, or prepare the "
                    "data-bin without it"
                )


def require_vocabulary(data_bin: DataBin, expected: Mapping[str, str], what: str) -> None:
    """Raise UserError if a data-bin has other dictionaries than `expected`, or the opposite direction.

    Args:
        data_bin: the data-bin.
        expected: SHA-256 of each dictionary by language, source first.
        what: what has the expected ones, and what to do.
    """
    if list(data_bin.dictionaries().items()) != list(expected.items()):
        raise UserError(
            f"{data_bin.folder}: its vocabulary or direction ({'-'.join(data_bin.languages)}) is not that of {what}"
        )


def open_record(config: RunConfig, provenance: Provenance, arguments: list[str], force: bool) -> RunRecord:
    """Return the record to train on: the one in the run's folder if its provenance is the same, else a new one.

    Raises:
        UserError: the provenance differs and `force` is not set or an argument of fairseq-train is not valid, or there
            are checkpoints without a record.
    """
    record, started = find_record(config.folder), has_checkpoints(config.folder)
    if record is None and started:
        raise UserError(f"{config.folder}: checkpoints without {RUN_RECORD}; {RECOVERY_ADVICE}")
    if record is None or not (started or record.has_ended):
        return RunRecord(config.dataset, config.model, config.seed, config.recorded_data_bin, _now(), provenance)
    changed = differences(record.provenance.facts(), provenance.facts())
    if not changed:
        return record
    require_valid_arguments(arguments)
    record = accept_or_refuse(config, record, changed, force)
    return replace(
        record, provenance=provenance, training=None, divergence=None, length_penalty_search=None, evaluations={}
    )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def accept_or_refuse(config: RunConfig, record: RunRecord, changed: list[str], force: bool) -> RunRecord:
    """Return the record with what changed noted; raise UserError unless `force`, or nothing changed."""
    if not changed:
        return record
    if not force:
        raise UserError(
            f"{config.folder} was created with different settings: {'; '.join(changed)}; change RUNS or SEED, or "
            "set FORCE=1 to continue from its checkpoints, which drops its scores and marks the run in tables"
        )
    if any(changed == accepted.differences for accepted in record.accepted_changes):
        return record  # as by the search for --lenpen before the translation, or for another subset
    return replace(record, accepted_changes=[*record.accepted_changes, AcceptedChange(_now(), changed)])


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
        raise UserError(f"DATA_BIN is set, but training starts from {name}, which has another data-bin; unset it")
    return resolve_run_config(name, config.model, config.seed, path.parents[1], runs, data_bin)


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


def trained_record(config: RunConfig) -> RunRecord:
    """Return the record of a run that has been trained or has diverged; raise UserError if there is none."""
    record = find_record(config.folder)
    if record is None or not record.has_ended:
        raise UserError(f"{config.folder}: training is not finished; repeat the command that began it")
    return record
