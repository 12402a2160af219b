"""The finished runs of experiments, and which of them may be compared."""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from relumt.analysis.record import ANALYSIS, CheckpointAnalysis, read_analysis
from relumt.analysis.scored_analysis import find_mismatch
from relumt.errors import UserError
from relumt.papers.comparability import DATA, EVALUATION, require_equal, signatures, training
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
        """Whether training diverged, or the test set was translated and its BLEU is below MIN_BLEU."""
        if self.record.divergence:
            return True
        # After seconds of training every score is low.
        is_smoke = self.record.dataset in (SMOKE, SMOKE_DOCUMENTS)
        return self.record.is_scored and not is_smoke and self.record.test_score("bleu_tokenized").score < MIN_BLEU

    @cached_property
    def analysis(self) -> CheckpointAnalysis | None:
        """What `relumt analyze` measured of it, None if it was not analyzed or diverged.

        Raises:
            UserError: analysis.json is about something other than the scores.
        """
        path = self.folder / ANALYSIS
        if self.diverged or not path.is_file():
            return None
        content = read_analysis(path)
        if mismatch := find_mismatch(content, self.record):
            raise UserError(f"{path}: {mismatch}; delete it and run relumt analyze again")
        return content.checkpoints[0]

    @property
    def is_measured(self) -> bool:
        """Whether nothing is missing to show measures of the analysis; a diverged run needs none."""
        return self.diverged or self.analysis is not None


def experiment_flags(experiment: Experiment) -> dict[str, str]:
    """Return the flags of an experiment beyond those of configs/, in the form of run.json."""
    return join_flag_values(parse_flags(experiment.flags, "experiment"))


def any_diverged(runs: Iterable[Run]) -> bool:
    """Return whether any of the runs diverged."""
    return any(run.diverged for run in runs)


def find_runs(experiment: Experiment, runs: Path) -> list[Run]:
    """Return the runs of an experiment that are scored or diverged, by seed; `runs` is the folder of all runs.

    Raises:
        UserError: a run.json is in the wrong folder, a run lacks the flags of the experiment, or the seeds were trained
            with different settings.
    """
    found = []
    for path in sorted(experiment.model_folder(runs).glob(f"*/{RUN_RECORD}")):
        run = Run(path.parent, load_record(path.parent), experiment)
        _require_own_place(run)
        if run.record.is_scored or run.record.divergence:
            found.append(run)
    found.sort(key=lambda run: run.seed)
    require_equal(records_by_folder(found), training())
    return found


def _require_own_place(run: Run) -> None:
    """Raise UserError unless a run's folder has its name, and training had the flags that its row or column names.

    A copy in another folder would count as another seed, model or dataset.
    """
    name = run.record.name
    if run.folder.absolute().parts[-3:] != tuple(name.split("/")):
        raise UserError(f"{run.folder}: expected the folder of a run, found that of {name}; rename or move it")
    expected, found = experiment_flags(run.experiment), run.record.provenance.flags
    if differing := [name for name, value in expected.items() if found.get(name) != value]:
        wanted, had = ([format_flag(flags, name) for name in differing] for flags in (expected, found))
        raise UserError(
            f"{run.folder / RUN_RECORD}: expected a run with {' '.join(wanted)}, found {', '.join(had)}; "
            "move it to another RUNS folder, and train again with these flags"
        )


def records_by_folder(runs: Iterable[Run]) -> dict[str, RunRecord]:
    """Return folder -> record."""
    return {str(run.folder): run.record for run in runs}


def require_comparable(runs: Sequence[Run], metrics: Collection[str], varied: Collection[str] = ()) -> None:
    """Raise UserError, naming two runs, unless all were trained, translated and scored alike except for the model.

    Args:
        runs: runs of one dataset.
        metrics: scores in run.json whose signatures must be equal.
        varied: flags of training that may differ.
    """

    def is_model_flag(flag: str) -> bool:
        return MODEL_FLAGS.fullmatch(flag) is not None

    def added_flags(run: Run) -> dict[str, str]:
        return {name: value for name, value in run.added_flags.items() if name in varied or is_model_flag(name)}

    records = records_by_folder(runs)
    require_equal(records, {**training(is_model_flag, varied), **DATA})
    require_equal({str(run.folder): run for run in runs}, {"the flags that the user added": added_flags})
    require_equal(records, {**EVALUATION, **signatures(metrics)})
