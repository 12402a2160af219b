"""What a translation is: its subset, flags, checkpoint and environment; and whether it may be made."""

from relumt.errors import UserError
from relumt.files import file_sha256
from relumt.runs.checkpoint_identity import refuse_foreign_checkpoint, refuse_vocabulary_of_checkpoint
from relumt.runs.data_bin import DataBin
from relumt.runs.environment import Device, Precision, current_environment
from relumt.runs.evaluation_record import EvaluationSetup
from relumt.runs.flags import Flags, join_flag_values
from relumt.runs.provenance import environment_differences, evaluation_differences, refuse_other_vocabulary
from relumt.runs.record import RunRecord
from relumt.runs.run_checkpoints import averaged_checkpoint, best_checkpoint
from relumt.runs.run_config import RunConfig
from relumt.runs.training_steps import accept_or_refuse


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


def gives_equal_scores(recorded: EvaluationSetup, current: EvaluationSetup) -> bool:
    """Return whether translating and scoring again could not change the recorded scores.

    Commits may differ in documentation only, and not every version of a package affects results.
    """
    return recorded.matches(current) and not evaluation_differences(recorded.environment, current.environment)


def has_case_of_data(signature: str, data_bin: DataBin) -> bool:
    """Return whether a BLEU with this signature ignores case if and only if the data-bin is lowercased.

    A lowercase text that is prepared again with --lowercase does not change, but its BLEU is to ignore case.
    """
    return ("case:lc" in signature.split("|")) == data_bin.lowercased


def translation_precision(flags: Flags) -> Precision:
    """Return the precision that fairseq-generate computes products in."""
    return "bf16" if "--bf16" in flags else "fp32"


def subset_name(flags: Flags) -> str:
    """Return the subset that is translated; raises UserError if --gen-subset does not name exactly one."""
    names = flags.get("--gen-subset", ["test"])
    if len(names) != 1:
        raise UserError(f"--gen-subset needs one value (test, valid or train), found {len(names)}")
    return names[0]


def accept_environment(config: RunConfig, record: RunRecord, setup: EvaluationSetup, accept_changes: bool) -> RunRecord:
    """Return the record, with the change noted if the environment is not that of training and this is accepted.

    Raises:
        UserError: the environment is another one, and `accept_changes` is false.
    """
    trained_in = record.provenance.environment.in_precision(setup.environment.device.precision)
    if differences := environment_differences(trained_in, setup.environment):
        return accept_or_refuse(config, record, differences, accept_changes)
    return record


def check_checkpoint(config: RunConfig, record: RunRecord, setup: EvaluationSetup) -> None:
    """Raise UserError if the checkpoint contains code, or is not of this run or not of the data-bin's vocabulary."""
    from relumt.checkpoints.loading import load_checkpoint_safely  # imports PyTorch, which takes seconds

    refuse_other_vocabulary(record.provenance, config.data_bin)
    path = config.checkpoints / setup.checkpoint
    checkpoint = load_checkpoint_safely(path)
    refuse_foreign_checkpoint(path, checkpoint, record)
    refuse_vocabulary_of_checkpoint(path, checkpoint, config.data_bin)
