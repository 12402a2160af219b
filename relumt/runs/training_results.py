"""How training ended: what is recorded about it, and the records of runs that were started or finished."""

from dataclasses import replace
from pathlib import Path

from relumt.checkpoints.folder import LAST_CHECKPOINT
from relumt.console import print_status
from relumt.errors import AttemptFailedError, UserError
from relumt.runs.comparability import require_run_folder
from relumt.runs.record import RUN_RECORD, RunRecord, TrainingSummary, find_record, save_record
from relumt.runs.run_checkpoints import has_checkpoints
from relumt.runs.run_config import RunConfig
from relumt.runs.training_log import find_divergence, read_training_log

TRAIN_LOG = "train.log"
"""Name of fairseq-train's log in a run's folder."""


def started_record(config: RunConfig) -> RunRecord:
    """Return the record of a run whose training was started; raises UserError if there is none."""
    record = find_record(config.folder)
    if record is None:
        raise UserError(
            f"{config.folder}: no {RUN_RECORD}; run scripts/train.sh {config.dataset_argument} {config.model}"
        )
    return record


def trained_record(config: RunConfig) -> RunRecord:
    """Return the record of a run whose training has finished; raises UserError if there is none."""
    record = find_record(config.folder)
    if record is None or record.training is None:
        raise UserError(
            f"{config.folder}: training is not finished; run scripts/train.sh {config.dataset_argument} {config.model}"
        )
    require_run_folder(config.folder, record)
    return record


def finish_training(config: RunConfig) -> None:
    """Record the summary of the log after fairseq-train has succeeded.

    Raises:
        UserError: training was not started or finished no epoch, or there is no checkpoint to translate with.
    """
    record = started_record(config)
    if not has_checkpoints(config.folder):
        raise UserError(f"{config.checkpoints}: fairseq-train saved no checkpoint; see {config.folder / TRAIN_LOG}")
    summary = read_training_log(config.folder / TRAIN_LOG, record.losses_from)
    save_record(config.folder, replace(record, training=_complete_summary(summary, config, record)))


def _complete_summary(summary: TrainingSummary, config: RunConfig, record: RunRecord) -> TrainingSummary:
    """Return the summary of a log with what the last checkpoint says if the log was shortened and ends before it."""
    from relumt.checkpoints.loading import count_updates, open_checkpoint_safely  # imports PyTorch, takes seconds

    last = config.checkpoints / LAST_CHECKPOINT
    if not last.is_file():
        return summary
    checkpoint = open_checkpoint_safely(last)
    updates = count_updates(checkpoint, last)
    if updates <= summary.updates:
        return summary
    print_status(f"{config.folder / TRAIN_LOG} ends at update {summary.updates}; {last.name} says how training ended")
    state = checkpoint["extra_state"]
    position, best = state["train_iterator"], state.get("best")
    has_other_best = "--best-checkpoint-metric" in record.provenance.flags or best is None
    return replace(
        summary,
        updates=updates,
        epochs=position["epoch"] - (position.get("iterations_in_epoch") == 0),
        best_valid_loss=summary.best_valid_loss if has_other_best else float(best),
    )


def record_divergence(config: RunConfig) -> None:
    """Record that the run diverged after fairseq-train has failed; raises UserError if it failed for another reason."""
    log = config.folder / TRAIN_LOG
    divergence = find_divergence(log)
    if divergence is None:
        raise AttemptFailedError(f"{config.folder}: fairseq-train failed ({_last_line(log)}); see the end of {log}")
    record = replace(started_record(config), divergence=divergence)
    save_record(config.folder, record)
    report_divergence(config, record)


def _last_line(log: Path) -> str:
    """Return at most 200 characters of a log's last line that is not empty, "" if there is none."""
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n") if log.is_file() else []
    return next((line.strip()[:200] for line in reversed(lines) if line.strip()), "")


def report_training(config: RunConfig, record: RunRecord) -> bool:
    """Return whether training is recorded as finished, and print it."""
    if record.training:
        print_status(f"{config.folder}: trained already")
    return record.training is not None


def report_divergence(config: RunConfig, record: RunRecord) -> bool:
    """Return whether the run is recorded as diverged, and print it."""
    if found := record.divergence:
        print_status(f"{config.folder}: diverged after update {found.update} ({found.reason}); nothing to evaluate")
    return found is not None
