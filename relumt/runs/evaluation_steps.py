"""The steps of scripts/evaluate.sh: translate a subset with a trained run's checkpoint, then score the translations."""

import shutil
from dataclasses import replace
from pathlib import Path

from relumt.console import print_status
from relumt.errors import UserError
from relumt.files import file_sha256
from relumt.runs.checkpoint_identity import refuse_foreign_checkpoint, refuse_vocabulary_of_checkpoint
from relumt.runs.environment import Device, Precision, current_environment
from relumt.runs.evaluation_record import EvaluationSetup
from relumt.runs.evaluation_results import (
    SINGLE_SENTENCES,
    count_separator_mismatches,
    evaluate_output,
    generate_log,
    generate_output,
)
from relumt.runs.flags import Flags, join_flag_values
from relumt.runs.provenance import environment_differences, refuse_other_vocabulary
from relumt.runs.record import RunRecord, find_record, save_record
from relumt.runs.run_checkpoints import averaged_checkpoint, best_checkpoint, has_checkpoints
from relumt.runs.run_config import RunConfig
from relumt.runs.training_steps import FairseqCommand, accept_or_refuse, report_divergence, trained_record


def start_evaluation(
    config: RunConfig, device: Device, extra_flags: list[str], one_by_one: bool, accept_changes: bool
) -> FairseqCommand | None:
    """Record what will be translated, and return the command; None if it is already scored or the run diverged.

    Raises:
        UserError: training is not finished, or the data-bin has a different vocabulary, or the environment is not that
            of training, or the checkpoint is missing, contains code or is not of this run.
    """
    found = find_record(config.folder)
    if found and report_divergence(config, found):
        return None
    record = trained_record(config)
    flags = config.generate_flags(extra_flags, record.provenance.flags)
    if _is_scored_without_checkpoints(config, record, flags):
        print_status(f"{config.folder}: evaluated already, and its checkpoints were deleted")
        return None
    setup = describe_evaluation(config, flags, device, one_by_one)
    evaluation = record.evaluations.get(setup.subset)
    if evaluation and evaluation.setup == setup:
        print_status(f"{config.folder}: {setup.subset} evaluated already")
        return None
    refuse_other_vocabulary(record.provenance, config.data_bin)
    trained_in = record.provenance.environment.in_precision(setup.environment.device.precision)
    if differences := environment_differences(trained_in, setup.environment):
        record = accept_or_refuse(config, record, differences, accept_changes)
    from relumt.checkpoints.loading import load_checkpoint_safely  # imports PyTorch, which takes seconds

    path = config.checkpoints / setup.checkpoint
    checkpoint = load_checkpoint_safely(path)
    refuse_foreign_checkpoint(path, checkpoint, record)
    refuse_vocabulary_of_checkpoint(path, checkpoint, config.data_bin)
    save_record(config.folder, replace(record, pending_evaluation=setup))
    # Translations of another setup must not be scored as this one's if fairseq-generate fails.
    generate_output(config.folder, setup).unlink(missing_ok=True)
    shutil.rmtree(config.folder / SINGLE_SENTENCES, ignore_errors=True)
    return _generate_command(config, setup, flags, config.folder, device)


def describe_evaluation(config: RunConfig, flags: Flags, device: Device, one_by_one: bool) -> EvaluationSetup:
    """Describe the translation of a subset with the run's best checkpoint, or the average of its last ones.

    Raises:
        UserError: the data-bin has no such subset, or the run has no checkpoint.
    """
    subset = subset_name(flags)
    config.data_bin.require_subset(subset)
    count = config.dataset_config.average_checkpoints
    checkpoint = averaged_checkpoint(config.folder, count) if count else best_checkpoint(config.folder)
    return EvaluationSetup(
        subset=subset,
        flags=join_flag_values(flags),
        data=config.data_bin.evaluation_checksum(subset),
        checkpoint=checkpoint.name,
        checkpoint_sha256=file_sha256(checkpoint),
        environment=current_environment(device).in_precision(translation_precision(flags)),
        one_by_one=one_by_one,
    )


def translation_precision(flags: Flags) -> Precision:
    """Return the precision that fairseq-generate computes products in."""
    return "bf16" if "--bf16" in flags else "fp32"


def subset_name(flags: Flags) -> str:
    """Return the subset that is translated; raises UserError if --gen-subset does not name exactly one."""
    names = flags.get("--gen-subset", ["test"])
    if len(names) != 1:
        raise UserError(f"--gen-subset needs one value (test, valid or train), found {len(names)}")
    return names[0]


def _is_scored_without_checkpoints(config: RunConfig, record: RunRecord, flags: Flags) -> bool:
    """Whether the subset was scored with these flags before the run's checkpoints were deleted."""
    evaluation = record.evaluations.get(subset_name(flags))
    return (
        evaluation is not None
        and evaluation.setup.flags == join_flag_values(flags)
        and not has_checkpoints(config.folder)
    )


def _generate_command(
    config: RunConfig, setup: EvaluationSetup, flags: Flags, folder: Path, device: Device
) -> FairseqCommand:
    arguments = config.generate_command(flags, config.checkpoints / setup.checkpoint, folder, device)
    return FairseqCommand(generate_log(config.folder, setup), arguments)


def start_one_by_one(config: RunConfig, device: Device, extra_flags: list[str]) -> FairseqCommand | None:
    """Return the command that translates sentences one by one; None if every translated chunk has its separators.

    Raises:
        UserError: no translation is pending, or it is not of documents with separators.
    """
    record = trained_record(config)
    setup = pending_evaluation(config, record)
    if not setup.flags.get("--document-separator"):
        raise UserError(
            f"{config.folder}: ONE_BY_ONE needs a model trained with --document-separator; unset ONE_BY_ONE"
        )
    mismatches = count_separator_mismatches(config, setup)
    if not mismatches:
        return None
    print_status(
        f"{config.folder}: {mismatches} translated chunks have a different number of separators than their source; "
        "translating sentences one by one"
    )
    flags = config.generate_flags(extra_flags, record.provenance.flags) | {"--document-length": ["1"]}
    return _generate_command(config, setup, flags, config.folder / SINGLE_SENTENCES, device)


def pending_evaluation(config: RunConfig, record: RunRecord) -> EvaluationSetup:
    """Return the translation that is not scored yet; raises UserError if there is none."""
    if record.pending_evaluation is None:
        raise UserError(f"{config.folder}: there is no unscored translation; run scripts/evaluate.sh")
    return record.pending_evaluation


def score_pending(config: RunConfig) -> None:
    """Write the translations, record their scores and print them.

    Earlier scores of the subset are dropped first, because writing replaces the translations that they belong to.

    Raises:
        UserError: no translation is pending, or fairseq-generate did not translate every sentence.
    """
    record = trained_record(config)
    setup = pending_evaluation(config, record)
    others = {subset: scored for subset, scored in record.evaluations.items() if subset != setup.subset}
    record = replace(record, evaluations=others)
    save_record(config.folder, record)
    evaluation = evaluate_output(config, setup)
    record = replace(record, pending_evaluation=None, evaluations=others | {setup.subset: evaluation})
    save_record(config.folder, record)
    for subset, scored in record.evaluations.items():
        for score in scored.scores.values():
            print_status(f"{subset}: {score.detail}  {score.signature}")
