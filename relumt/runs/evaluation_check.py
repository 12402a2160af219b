"""The first step of scripts/evaluate.sh, which writes nothing: check whether a run can be translated."""

from collections.abc import Mapping

from relumt.checkpoints.folder import BEST_CHECKPOINT
from relumt.errors import UserError
from relumt.runs.environment import Device
from relumt.runs.evaluation_setup import subset_name, translation_precision
from relumt.runs.length_penalty_search import check_search, is_translated_as_asked
from relumt.runs.provenance import covers_content
from relumt.runs.record import RunRecord, find_record
from relumt.runs.run_checkpoints import has_checkpoints, num_averaged
from relumt.runs.run_config import RunConfig
from relumt.runs.training_results import report_divergence, trained_record


def check_evaluation(config: RunConfig, device: Device, extra_flags: list[str], one_by_one: bool) -> bool:
    """Return whether there is a model that can translate a subset with these flags: False if the run diverged.

    Raises:
        UserError: training is not finished, the data-bin lacks the subset, fairseq-generate would refuse the flags, or
            the model's translations have no separators that `one_by_one` could restore.
    """
    found = find_record(config.folder)
    if found and report_divergence(config, found):
        return False
    record = trained_record(config)
    if one_by_one:
        require_separator(config, record.provenance.flags)
    flags = config.generate_flags(extra_flags, record.provenance.flags)
    config.data_bin.require_subset(subset_name(flags))
    check_search(config, flags)
    if translation_precision(flags) == "bf16" and record.provenance.flags.get("--arch", "").startswith("transformer"):
        raise UserError(f"{config.model}: --bf16 works with relumt's architectures, found --arch transformer; drop it")
    if not is_scored(config, record, extra_flags):
        from relumt.runs.flag_checks import check_generate_flags  # imports fairseq, which takes seconds

        checkpoint = config.checkpoints / BEST_CHECKPOINT
        check_generate_flags(config.generate_command(flags, checkpoint, config.folder, device))
    return True


def require_separator(config: RunConfig, trained: Mapping[str, object]) -> None:
    """Raise UserError unless the flags of training, `trained`, set a separator, so that ONE_BY_ONE has a meaning."""
    if not trained.get("--document-separator"):
        raise UserError(
            f"{config.folder}: ONE_BY_ONE=1 needs a model trained with --document-separator; unset ONE_BY_ONE"
        )


def is_scored(config: RunConfig, record: RunRecord, extra_flags: list[str]) -> bool:
    """Return whether a subset was scored with these flags, whichever checkpoint and environment were used.

    Raises:
        UserError: a flag is one that the scripts set, or the flags do not name a subset.
    """
    flags = config.generate_flags(extra_flags, record.provenance.flags)
    return is_translated_as_asked(config, record, flags)


def is_scored_as_configured(config: RunConfig, record: RunRecord) -> bool:
    """Return whether the test set was scored with the dataset's settings of translation, and has not changed since.

    The number of averaged checkpoints is not compared if they were deleted: then nothing can be translated again.
    """
    setup = record.test_evaluation.setup
    is_same_average = config.dataset_config.average_checkpoints == num_averaged(setup.checkpoint)
    if has_checkpoints(config.folder) and not is_same_average:
        return False
    is_same_data = not covers_content(setup.data) or setup.data == config.data_bin.evaluation_checksum(setup.subset)
    return is_same_data and is_scored(config, record, [])
