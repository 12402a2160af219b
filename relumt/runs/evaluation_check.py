"""The first step of scripts/evaluate.sh, which writes nothing: check whether a run can be translated."""

from pathlib import Path

from relumt.runs.environment import Device
from relumt.runs.evaluation_steps import subset_name
from relumt.runs.flags import join_flag_values
from relumt.runs.record import find_record
from relumt.runs.run_config import RunConfig
from relumt.runs.training_steps import report_divergence, trained_record


def check_evaluation(config: RunConfig, device: Device, extra_flags: list[str]) -> Path | None:
    """Return the run's folder if a subset can be translated with these flags; None if the run diverged.

    Raises:
        UserError: training is not finished, the data-bin lacks the subset, or fairseq-generate would refuse the flags.
    """
    found = find_record(config.folder)
    if found and report_divergence(config, found):
        return None
    record = trained_record(config)
    flags = config.generate_flags(extra_flags, record.provenance.flags)
    subset = subset_name(flags)
    config.data_bin.require_subset(subset)
    scored = record.evaluations.get(subset)
    if scored is None or scored.setup.flags != join_flag_values(flags):
        from relumt.runs.flag_checks import check_generate_flags  # imports fairseq, which takes seconds

        checkpoint = config.checkpoints / "checkpoint_best.pt"
        check_generate_flags(config.generate_command(flags, checkpoint, config.folder, device))
    return config.folder
