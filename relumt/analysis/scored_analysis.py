"""Check whether analysis.json belongs to a run's scores: same checkpoint and same test set.

An analysis is up to date if it also used the gold alignments that the data-bin has now.
"""

from pathlib import Path

from relumt.analysis.record import ANALYSIS, AnalysisFile, read_analysis
from relumt.corpora.record import gold_alignments_path
from relumt.errors import UserError, print_status
from relumt.files import file_sha256
from relumt.runs.record import TEST, RunRecord, find_data_bin
from relumt.runs.run_config import RunConfig
from relumt.runs.training import report_end, trained_record


def find_mismatch(analysis: AnalysisFile, record: RunRecord) -> str:
    """Say why an analysis does not belong to the scores of a run; "" if it does."""
    if not record.is_scored:
        return "expected a run whose test set is scored"
    if len(analysis.checkpoints) != 1 or analysis.subset != TEST:
        return "expected an analysis of this run's test set only"
    found, scored = analysis.checkpoints[0], record.test_evaluation.setup
    if found.sha256 != scored.checkpoint_sha256:
        return "analyzed a different checkpoint than the one that was scored"
    if found.data_sha256 != scored.data:
        return "analyzed a different test set than the one that was scored"
    return ""


def is_analyzed(folder: Path, record: RunRecord) -> bool:
    """Return whether a run has a readable analysis of the scored checkpoint, on the same test set and alignments."""
    try:
        analysis = read_analysis(folder / ANALYSIS)
    except (FileNotFoundError, UserError):
        return False
    gold, used = gold_alignments_path(find_data_bin(folder, record), TEST), analysis.checkpoints[0].alignments_sha256
    has_other_alignments = used is not None and gold.is_file() and file_sha256(gold) != used
    return not find_mismatch(analysis, record) and not has_other_alignments


def needs_analysis(config: RunConfig) -> bool:
    """Return whether a run is to be analyzed: not if it diverged or the checkpoint that was scored is analyzed already.

    Raises:
        UserError: training is not finished.
    """
    record = trained_record(config)
    if record.divergence:
        report_end(config, record)
        return False
    if is_analyzed(config.folder, record):
        print_status(f"{config.folder}: analyzed already")
        return False
    return True
