"""The finished runs of experiments, and which of them may be compared."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from relumt.analysis.record import ANALYSIS, CheckpointAnalysis, read_analysis
from relumt.analysis.scored_analysis import find_mismatch
from relumt.errors import UserError
from relumt.papers.comparability import (
    DATA,
    require_all_equal,
    require_equal,
    require_equal_evaluations,
    require_equal_signatures,
    require_equal_training,
    require_run_folder,
)
from relumt.papers.experiments import SMOKE, SMOKE_DOCUMENTS, Experiment
from relumt.runs.flags import MECHANISM_FLAGS, format_flag, join_flag_values, parse_flags
from relumt.runs.record import RUN_RECORD, RunRecord, load_record

MIN_BLEU = 1.0
"""A run with a lower BLEU on the test set counts as diverged, like one whose gradient was no longer finite."""

MODEL_FLAGS = re.compile(
    rf"--(seed|arch|criterion|attention-(norm|entropy)-.*|attention-schedule-updates|{MECHANISM_FLAGS})"
)
"""Flags that may differ within a column of a table: the seed, and those that configs/models.toml sets."""


@dataclass(frozen=True)
class Run:
    """A run of an experiment: its folder and its run.json."""

    folder: Path
    record: RunRecord
    experiment: Experiment

    @property
    def seed(self) -> int:
        """The random seed of its training."""
        return self.record.seed

    @property
    def added_flags(self) -> dict[str, str]:
        """The flags of training that the user added to those of configs/ and of the experiment."""
        given = join_flag_values(parse_flags(self.record.extra_flags, RUN_RECORD))
        expected = experiment_flags(self.experiment)
        return {name: value for name, value in given.items() if expected.get(name) != value}

    @property
    def diverged(self) -> bool:
        """Whether it diverged, by its record or by its BLEU; see `has_diverged`."""
        return has_diverged(self.record)

    @cached_property
    def analysis(self) -> CheckpointAnalysis | None:
        """What `relumt analyze` measured of it, None if it was not analyzed.

        Raises:
            UserError: analysis.json is about something other than the scores.
        """
        path = self.folder / ANALYSIS
        if not path.is_file():
            return None
        content = read_analysis(path)
        if mismatch := find_mismatch(content, self.record):
            raise UserError(f"{path}: {mismatch}; delete it and run relumt analyze again")
        return content.checkpoints[0]


def experiment_flags(experiment: Experiment) -> dict[str, str]:
    """Return the flags of an experiment beyond those of configs/, in the form of run.json."""
    return join_flag_values(parse_flags(experiment.flags, "experiment"))


def has_diverged(record: RunRecord) -> bool:
    """Return whether training diverged, or the test set was translated and its BLEU is below MIN_BLEU."""
    if record.divergence:
        return True
    # After seconds of training every score is low.
    is_smoke = record.dataset in (SMOKE, SMOKE_DOCUMENTS)
    return record.is_scored and not is_smoke and record.test_score("bleu_tokenized").score < MIN_BLEU


def any_diverged(runs: Iterable[Run]) -> bool:
    """Return whether any of the runs diverged."""
    return any(run.diverged for run in runs)


def has_results(experiment: Experiment, record: RunRecord) -> bool:
    """Return whether the test set is scored or, for an experiment that does not need it, training has finished."""
    return record.is_scored if experiment.needs_test else record.training is not None


def find_runs(experiment: Experiment, runs: Path) -> list[Run]:
    """Return the runs of an experiment that have results or diverged, by seed; `runs` is the folder of all runs.

    Raises:
        UserError: a run.json is in the wrong folder, a run lacks the flags of the experiment, or the seeds were trained
            with different settings.
    """
    found = []
    for path in sorted(
        experiment.model_folder(runs).glob(f"*/{RUN_RECORD}"), key=lambda path: path.parent.name.rjust(20)
    ):
        record = load_record(path.parent)
        require_run_folder(path.parent, record)
        require_experiment_flags(path, record, experiment)
        if has_results(experiment, record) or record.divergence:
            found.append(Run(path.parent, record, experiment))
    require_equal_training(records_by_folder(found))
    return found


def require_experiment_flags(path: Path, record: RunRecord, experiment: Experiment) -> None:
    """Raise UserError unless training had the flags of the experiment, which rows and columns of tables name."""
    expected, found = experiment_flags(experiment), record.provenance.flags
    if differing := [name for name, value in expected.items() if found.get(name) != value]:
        wanted, had = ([format_flag(flags, name) for name in differing] for flags in (expected, found))
        raise UserError(
            f"{path}: expected a run with {' '.join(wanted)}, found {', '.join(had)}; "
            "move it to another RUNS folder, and train again with these flags"
        )


def records_by_folder(runs: Iterable[Run]) -> dict[str, RunRecord]:
    """Return folder -> record."""
    return {str(run.folder): run.record for run in runs}


def require_comparable(runs: Iterable[Run], metric: str, varied: Sequence[str] = ()) -> None:
    """Raise UserError, naming two runs, unless all were trained, translated and scored alike except for the model.

    Args:
        runs: runs of one dataset.
        metric: score in run.json whose signature must be equal.
        varied: flags of training that may differ.
    """
    runs = list(runs)

    def is_model_flag(flag: str) -> bool:
        return MODEL_FLAGS.fullmatch(flag) is not None

    def added_flags(run: Run) -> dict[str, str]:
        return {name: value for name, value in run.added_flags.items() if name in varied or is_model_flag(name)}

    records = records_by_folder(runs)
    require_equal_training(records, is_model_flag, varied)
    require_all_equal(records, DATA)
    require_equal({str(run.folder): run for run in runs}, "the flags that the user added", added_flags)
    scored = {folder: record for folder, record in records.items() if record.is_scored}
    require_equal_evaluations(scored)
    require_equal_signatures(scored, metric)
