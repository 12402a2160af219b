"""The runs that a table is made of, found by their folders, and what of them may be compared."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from relumt.errors import UserError
from relumt.runs.analysis_record import ANALYSIS, CheckpointAnalysis, read_analysis
from relumt.runs.comparability import (
    require_equal,
    require_equal_batches,
    require_equal_evaluations,
    require_equal_initialization,
    require_equal_signatures,
    require_seed_folder,
)
from relumt.runs.flags import MECHANISM_FLAGS, join_flag_values, parse_flags
from relumt.runs.record import RECORD, TEST, RunRecord, load_record
from relumt.tables.experiments import Experiment

FLAGS = "the flags of training"

LEAST_BLEU = 1.0
"""A run that scores less on the test set counts as diverged, as one does whose gradient was not finite any more."""


MEANINGLESS = ("smoke", "smoke_documents")
"""Datasets that train for seconds, whose scores say nothing, not that a run diverged either."""

OF_MODELS = re.compile(
    rf"--(seed|arch|criterion|attention-(norm-weight|entropy-weight|entropy-bound)|{MECHANISM_FLAGS})"
)
"""Flags that may differ within a column: those that a file of configs/models can set, and the seed."""


@dataclass(frozen=True)
class Run:
    """A run: its folder, its run.json, and the cell that it is of."""

    folder: Path
    record: RunRecord
    experiment: Experiment

    @property
    def seed(self) -> int:
        """Its random seed."""
        return self.record.seed

    @property
    def typed(self) -> dict[str, str]:
        """Flags of training that say which model it is and are neither of configs/ nor of the cell: typed by somebody.

        A record from before the typed ones were kept has none.
        """
        given = join_flag_values(parse_flags(self.record.extra_flags, RECORD))
        of_cell = join_flag_values(parse_flags(self.experiment.flags, "a table's cell"))
        return {name: value for name, value in given.items() - of_cell.items() if OF_MODELS.fullmatch(name)}

    @property
    def diverged(self) -> bool:
        """By the rule of `LEAST_BLEU`."""
        if self.record.divergence:
            return True
        return self.record.dataset not in MEANINGLESS and self.record.test_score("bleu_tokenized").score < LEAST_BLEU

    @property
    def ended(self) -> bool:
        """Whether it has scores of the test set, or will have none."""
        return self.record.is_scored or self.record.divergence is not None

    @cached_property
    def analysis(self) -> CheckpointAnalysis | None:
        """What `relumt analyze` measured of it, None if it did not.

        Raises:
            UserError: the file is not of what was scored.
        """
        path = self.folder / ANALYSIS
        if not path.is_file():
            return None
        of_file = read_analysis(path)
        analysis, *others = of_file.checkpoints
        if others or of_file.subset != TEST:
            raise UserError(f"{path}: not of this run's test set alone; delete it and run relumt analyze again")
        if analysis.sha256 != self.record.test_evaluation.setup.checkpoint_sha256:
            raise UserError(f"{path}: of another checkpoint than the scores; delete it and run relumt analyze again")
        return analysis


def diverged(runs: Iterable[Run]) -> bool:
    """Whether any of them did."""
    return any(run.diverged for run in runs)


def find_runs(cell: Experiment, runs: Path) -> list[Run]:
    """The cell's runs that have ended, by seed.

    Raises:
        UserError: a run.json is of another run than its folder says, or its seeds were not trained alike.
    """
    found = []
    for path in sorted(cell.seeds_folder(runs).glob(f"*/{RECORD}"), key=lambda path: path.parent.name.rjust(20)):
        run = Run(path.parent, load_record(path.parent), cell)
        if (run.record.dataset, run.record.model) != (cell.dataset, cell.model):
            of = f"{run.record.dataset}/{run.record.model}"
            raise UserError(f"{path}: of {of}, not of {cell.dataset}/{cell.model}; put it where it belongs")
        require_seed_folder(run.folder, run.record)
        if run.ended:
            found.append(run)
    records = by_folder(found)
    require_equal(records, FLAGS, lambda record: record.provenance.flags | {"--seed": ""})
    require_equal_batches(records)
    require_equal_initialization(records)
    return found


def by_folder(runs: Iterable[Run]) -> dict[str, RunRecord]:
    """Their records, by their folders."""
    return {str(run.folder): run.record for run in runs}


def common_flags(record: RunRecord, varied: Sequence[str] = ()) -> dict[str, str]:
    """The flags of training but the seed, those that say which model it is, and those `varied`."""
    flags = record.provenance.flags
    return {name: value for name, value in flags.items() if name not in varied and not OF_MODELS.fullmatch(name)}


def require_comparable(runs: Iterable[Run], measured_by: str, varied: Sequence[str] = ()) -> None:
    """Raise UserError, naming two runs, unless all were trained, translated and scored alike but for the model.

    measured_by: a score of run.json. varied: flags of training that may differ.
    """
    every = list(runs)
    require_equal(by_folder(every), FLAGS, lambda record: common_flags(record, varied))
    require_equal_batches(by_folder(every))
    require_equal_initialization(by_folder(every))
    require_equal({str(run.folder): run for run in every}, "the model's flags that were typed", lambda run: run.typed)
    records = {name: record for name, record in by_folder(every).items() if record.is_scored}
    require_equal_evaluations(records)
    require_equal_signatures(records, measured_by)
