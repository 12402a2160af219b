"""The steps of scripts/train.sh before training: check everything, then start fairseq-train or resume it."""

import shlex
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from relumt.checkpoints.folder import LAST_CHECKPOINT
from relumt.errors import UserError
from relumt.files import require_writable
from relumt.runs.checkpoint_identity import describe_run, refuse_foreign_checkpoint, refuse_vocabulary_of_checkpoint
from relumt.runs.comparability import require_run_folder
from relumt.runs.environment import Device
from relumt.runs.flags import Flags
from relumt.runs.initialization import find_pretrained_run, resolve_pretraining
from relumt.runs.provenance import (
    environment_differences,
    measures_other_loss,
    provenance_differences,
    refuse_other_vocabulary,
    training_provenance,
    training_subsets,
)
from relumt.runs.record import (
    RUN_RECORD,
    Divergence,
    EnvironmentChange,
    Provenance,
    RunRecord,
    find_record,
    recovery_advice,
    save_record,
)
from relumt.runs.run_checkpoints import has_checkpoints, recover_checkpoints, require_numbered_checkpoints
from relumt.runs.run_config import FairseqCommand, RunConfig
from relumt.runs.training_log import COMMAND_PREFIX, FORGET_BEST
from relumt.runs.training_results import TRAIN_LOG, finish_training, report_divergence, report_training


def check_training(
    config: RunConfig, device: Device, extra_flags: list[str], accept_changes: bool, data_bin: Path | None
) -> list[RunConfig]:
    """Check everything that can be checked before anything is written.

    Args:
        config: the run.
        device: what it would be trained on.
        extra_flags: fairseq-train's flags beyond those of configs/.
        accept_changes: whether the run may continue with other settings.
        data_bin: the data-bin, if the user named one.

    Returns:
        The runs to train, in this order: those whose weights this one starts from, then this one. Empty if this one has
        ended.

    Raises:
        UserError: a run is impossible, or is not the recorded one.
    """
    record = _record_to_train(config, device, extra_flags, accept_changes)
    if report_training(config, record) or report_divergence(config, record):
        return []
    runs: list[RunConfig] = []
    if not has_checkpoints(config.folder) and (pretraining := resolve_pretraining(config, data_bin, extra_flags)):
        runs = check_training(pretraining, device, [], accept_changes, data_bin)
    require_writable(config.folder)
    flags = config.train_flags(extra_flags)
    require_numbered_checkpoints(flags, config.dataset_config.average_checkpoints)
    train, *valid = training_subsets(flags)
    for subset in [train] if "--disable-validation" in flags else [train, *valid]:
        config.data_bin.require_subset(subset)
    from relumt.runs.flag_checks import check_train_flags  # imports fairseq, which takes seconds

    check_train_flags(config.train_command(flags, device))
    describe_run(record)  # refuses models whose checkpoints could not be loaded
    return [*runs, config]


def start_training(
    config: RunConfig, device: Device, extra_flags: list[str], accept_changes: bool
) -> FairseqCommand | None:
    """Record the start or resumption of training, and return fairseq's command; None if training has ended.

    Raises:
        UserError: the run cannot start, or is not the recorded one.
    """
    flags = config.train_flags(extra_flags)
    earlier, record = find_record(config.folder), _record_to_train(config, device, extra_flags, accept_changes)
    if report_training(config, record):
        return None
    updates = recover_checkpoints(config.folder)
    if updates and earlier and measures_other_loss(earlier.provenance, record.provenance):
        record = replace(record, losses_from=updates)
    forget_best = [FORGET_BEST] if 0 < updates <= record.losses_from else []
    if has_checkpoints(config.folder):
        _refuse_foreign_last_checkpoint(config, record)
    pretrained = find_pretrained_run(config)
    initial_weights: list[str] = []
    if pretrained and pretrained.diverged:
        reason = f"the run on {pretrained.dataset}, from whose weights it would start, diverged"
        record = replace(record, divergence=Divergence(0, reason))
    elif pretrained and not updates:
        initial_weights = pretrained.train_flags()
    save_record(config.folder, record)
    if report_divergence(config, record):
        return None
    if _is_last_update(updates, flags):
        _finish_interrupted_training(config)
        return None
    if not updates:  # what an earlier training logged, which began with other weights, is not part of this one
        (config.folder / TRAIN_LOG).unlink(missing_ok=True)
    arguments = [*config.train_command(flags, device), *initial_weights, *forget_best]
    command = FairseqCommand(config.folder / TRAIN_LOG, arguments)
    _log_arguments(command)
    return command


def _finish_interrupted_training(config: RunConfig) -> None:
    """Record the results of a training that was killed after its last update."""
    from relumt.checkpoints.recovery import recover_best_checkpoint  # imports PyTorch, which takes seconds

    recover_best_checkpoint(config.checkpoints)  # fairseq does this when it resumes
    finish_training(config)


def _log_arguments(command: FairseqCommand) -> None:
    """Append the arguments to the log, on a line of their own: a kill may have cut off the last one."""
    with command.log.open("a", encoding="utf-8") as file:
        file.write(f"\n{COMMAND_PREFIX} {shlex.join(command.arguments)}\n")


def _refuse_foreign_last_checkpoint(config: RunConfig, record: RunRecord) -> None:
    """Raise UserError if the checkpoint from which fairseq would resume is not of this run."""
    from relumt.checkpoints.loading import open_checkpoint_safely  # imports PyTorch, which takes seconds

    last = config.checkpoints / LAST_CHECKPOINT
    checkpoint = open_checkpoint_safely(last)
    refuse_foreign_checkpoint(last, checkpoint, record)
    refuse_vocabulary_of_checkpoint(last, checkpoint, config.data_bin)


def _record_to_train(config: RunConfig, device: Device, extra_flags: list[str], accept_changes: bool) -> RunRecord:
    """Return the record to train on, as `open_record` does, with the flags and the data-bin of this start."""
    pretrained = find_pretrained_run(config)
    initialization = pretrained.describe() if pretrained else None
    provenance = training_provenance(config.train_flags(extra_flags), config.data_bin, device, initialization)
    record = open_record(config, provenance, accept_changes)
    return replace(record, extra_flags=extra_flags, data_bin=str(config.data_bin.folder))


def open_record(config: RunConfig, provenance: Provenance, accept_changes: bool) -> RunRecord:
    """Return the record to train on: the one in the run's folder if it has the same provenance, or a new one.

    A run without checkpoints starts over with a new record, unless training has ended, which means that its checkpoints
    were deleted afterwards. If `accept_changes`, a run with a different provenance may continue; its results so far are
    dropped and the change is recorded. A finished run keeps its record in another environment, which has trained none
    of it.

    Raises:
        UserError: there are checkpoints without a record, or with a different vocabulary or provenance; or the run
            cannot continue with a different provenance, because it has ended and its checkpoints were deleted.
    """
    record = find_record(config.folder)
    if not has_checkpoints(config.folder) and not (record and record.has_ended):
        started = datetime.now(UTC).isoformat(timespec="seconds")
        return RunRecord(config.dataset, config.model, config.seed, str(config.data_bin.folder), started, provenance)
    if record is None:
        raise UserError(f"{config.folder}: checkpoints without {RUN_RECORD}; {recovery_advice(config.folder)}")
    require_run_folder(config.folder, record)
    refuse_other_vocabulary(record.provenance, config.data_bin)
    differences = provenance_differences(record.provenance, provenance)
    if not differences:
        return record
    environment = environment_differences(record.provenance.environment, provenance.environment)
    if record.training and differences != environment and not has_checkpoints(config.folder):
        raise UserError(
            f"{config.folder}: its checkpoints were deleted, so it cannot continue with other settings: "
            f"{'; '.join(differences)}; change RUNS or SEED, or delete the folder"
        )
    changed = accept_or_refuse(config, record, differences, accept_changes)
    if record.training and differences == environment:
        return record
    return replace(
        changed,
        provenance=provenance,
        training=None,
        divergence=None,
        length_penalty_search=None,
        pending_evaluation=None,
        evaluations={},
    )


def accept_or_refuse(config: RunConfig, record: RunRecord, differences: list[str], accept_changes: bool) -> RunRecord:
    """Return the record with the differences noted; raises UserError unless `accept_changes`."""
    if not accept_changes:
        raise UserError(
            f"{config.folder} was created with different settings: {'; '.join(differences)}; change RUNS or SEED, "
            "delete the folder, or set ACCEPT_MIXED=1 to continue and record the change (other flags or data drop its "
            "scores)"
        )
    change = EnvironmentChange(datetime.now(UTC).isoformat(timespec="seconds"), differences)
    return replace(record, environment_changes=[*record.environment_changes, change])


def _is_last_update(updates: int, flags: Flags) -> bool:
    """Whether all updates are done; fairseq would do one more before it notices."""
    limit = "".join(flags.get("--max-update", []))
    return limit.isdecimal() and 0 < int(limit) <= updates
