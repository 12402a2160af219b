"""What a table needs to be rendered, such as the folder of its runs and the preset, and the notes below every table."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from relumt.console import print_status
from relumt.errors import UserError
from relumt.papers.comparability import describe_decoding_choices, describe_revisions
from relumt.papers.experiments import PRESETS, Experiment
from relumt.papers.measures import (
    DIVERGED_NOTE,
    ENVIRONMENTS_NOTE,
    SPREAD_NOTE,
    Measure,
    require_same_analyses,
)
from relumt.papers.runs import Run, any_diverged, find_runs
from relumt.runs.flags import format_flag
from relumt.runs.record import RUN_RECORD, RunRecord

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIGNIFICANCE_TESTS = {"bootstrap": "bs", "randomization": "ar"}
"""Name on the command line -> sacreBLEU's name: 1,000 bootstrap samples or 10,000 trials of randomization."""

MIN_CHANGED = 15
"""Lines whose contributions to the score must differ for a p-value.

With n of them, one in 2^(n − 1) random trials has the same difference as the real one. sacreBLEU counts these as less
extreme, so by randomization it would return p = 0.0001 for a single changed translation, whose p-value is 1. Its
bootstrap would return 0.001 for a test set of one document.
"""

P_VALUE_NOTES = {
    "bootstrap": "p: sacreBLEU's paired bootstrap, which is one-sided: two systems of equal scores get about 0.4; "
    f"--test randomization is two-sided; -: only 1 to {MIN_CHANGED - 1} lines differ",
    "randomization": "p: sacreBLEU's paired approximate randomization, two-sided; "
    f"-: only 1 to {MIN_CHANGED - 1} lines differ",
}
"""Test -> the note about p below a table."""

Runs = Mapping[Experiment, Sequence[Run]]
"""Experiment -> its finished runs, by seed."""


@dataclass(frozen=True)
class TableContext:
    """Which runs a table is rendered from, and how.

    Attributes:
        name: name of the table on the command line.
        runs: folder of all runs.
        preset: key of PRESETS.
        out: folder for plots.
        test: significance test, a key of SIGNIFICANCE_TESTS.
    """

    name: str
    runs: Path
    preset: str
    out: Path
    test: str = "bootstrap"

    @property
    def command(self) -> str:
        """The command that executes the runs."""
        return f"scripts/reproduce.sh {self.name} --preset {self.preset}"

    @property
    def preset_note(self) -> str:
        """The note about the preset below a table."""
        return f"preset {self.preset}: {PRESETS[self.preset]}"

    def caption(self, title: str) -> str:
        """Return the caption of a table with this title."""
        return f"{title}; preset {self.preset}"

    def save_plot(self, figure: "Figure") -> str:
        """Write a figure as PNG and SVG; return the note that says where."""
        from relumt.analysis.plots import save_figure  # matplotlib is optional

        name = f"{self.name}-{self.preset}"
        save_figure(figure, self.out, name)
        return f"plot: {self.out / name}.png, .svg"

    def find_runs(self, experiments: Iterable[Experiment]) -> Runs:
        """Find the finished runs, and print which experiments have none; raise UserError if there is no run at all."""
        found = {experiment: find_runs(experiment, self.runs) for experiment in experiments}
        missing = ", ".join(str(experiment.model_folder(self.runs)) for experiment, runs in found.items() if not runs)
        if missing and not any(found.values()):
            raise UserError(f"no finished run in {missing}; execute the runs with {self.command}")
        if missing:
            print_status(f"no finished run in {missing}; left out of the table; execute the runs with {self.command}")
        return found

    def warn_not_analyzed(self, runs: Runs) -> None:
        """Print which runs are neither analyzed nor diverged.

        Raises:
            UserError: their units of attention or their gold alignments differ.
        """
        require_same_analyses(chain(*runs.values()))
        missing = [str(run.folder) for run in chain(*runs.values()) if not is_analyzed_or_diverged(run)]
        if missing:
            print_status(
                f"{', '.join(missing)}: not analyzed, so their measures are left out; analyze them with {self.command}"
            )

    def analyzed_runs(self, runs: Runs) -> Runs:
        """Return the runs that are analyzed or diverged, and print which are not."""
        self.warn_not_analyzed(runs)
        return {experiment: list(filter(is_analyzed_or_diverged, seeds)) for experiment, seeds in runs.items()}

    def notes(self, dataset: str, runs: Iterable[Run], measures: Sequence[Measure] = ()) -> list[str]:
        """Return the notes about a dataset's runs: subsets, seeds, revisions, signatures, differences.

        Args:
            dataset: its name.
            runs: its runs.
            measures: what the table shows of them; without any, measures of the test set.
        """
        runs = list(runs)
        if not runs:
            return []
        subsets = sorted({measure.subset for measure in measures}) or ["test"]
        notes = [f"{dataset}: {' and '.join(subsets)} set, {describe_seeds(runs)}"]
        records = [run.record for run in runs]
        notes.append(f"{dataset}: {describe_revisions(records)}")
        notes += [f"{dataset}: {note}" for note in describe_decoding_choices(records)]
        if analyzed_with := other_analysis_revisions(runs):
            notes.append(f"{dataset}: analyzed with {', '.join(analyzed_with)}")
        if added := describe_added_flags(runs):
            notes.append(f"{dataset}: trained with flags from the command line: {added}")
        if initial_dataset := records[0].provenance.initialization.dataset:
            notes.append(f"{dataset}: trained on {initial_dataset} first")
        notes += difference_notes(records)
        notes += [
            f"{measure.label}, {dataset}: `{scored[0].signature(measure.metric)}`"
            for measure in measures
            if measure.metric and (scored := [record for record in records if record.has_metric(measure.metric)])
        ]
        if any_diverged(runs):
            notes.append(DIVERGED_NOTE)
        if changed := [record.name for record in records if record.accepted_changes]:
            notes.append(f"{ENVIRONMENTS_NOTE}: {', '.join(changed)}")
        return notes


def is_analyzed_or_diverged(run: Run) -> bool:
    """Return whether nothing is missing to show measures of the analysis; a diverged run needs none."""
    return run.diverged or run.analysis is not None


def other_analysis_revisions(runs: Sequence[Run]) -> list[str]:
    """Return the revisions of relumt that analyzed the runs, if they are not among those that trained them."""
    analyses = [run.analysis for run in runs if run.experiment.needs_analysis and not run.diverged]
    revisions = dict.fromkeys(
        analysis.versions.get("revision", "an unknown revision") for analysis in analyses if analysis
    )
    trained = {run.record.provenance.environment.relumt for run in runs}
    return [] if revisions.keys() <= trained else list(revisions)


def describe_seeds(runs: Sequence[Run]) -> str:
    """Return the seeds of all runs, and the models that lack some of them."""
    seeds = sorted({run.seed for run in runs})
    by_model: dict[str, set[int]] = {}
    for run in runs:
        by_model.setdefault(str(Path(run.experiment.variant, run.experiment.model)), set()).add(run.seed)
    incomplete = [model for model, found in by_model.items() if len(found) < len(seeds)]
    listed = f"seeds {', '.join(map(str, seeds))}"
    return f"{listed}; fewer of {', '.join(incomplete)}" if incomplete else listed


def describe_added_flags(runs: Sequence[Run]) -> str:
    """Return the flags of training that the user added to those of configs/ and of the experiments, "" for none."""
    return " ".join(dict.fromkeys(format_flag(run.added_flags, name) for run in runs for name in run.added_flags))


def list_differences(records: Sequence[RunRecord]) -> list[str]:
    """Return what differs between the environments of runs but does not make the runs incomparable."""
    environments = [record.provenance.environment for record in records]
    scored_in = [record.test_evaluation.setup.environment for record in records if record.is_scored]
    aspects: dict[str, Sequence[object]] = {
        "versions of packages": [environment.versions for environment in environments],
        "the code of relumt": [replace(environment.revision, commit="") for environment in environments],
        "the kind of device": [environment.device.name for environment in environments],
        "the backend of fp32 products": [environment.device.fp32_backend for environment in environments],
        "the kernels of attention": [environment.kernels for environment in environments],
        "versions of packages that scored them": [environment.versions for environment in scored_in],
        "the kind of device that translated": [environment.device.name for environment in scored_in],
    }
    return [aspect for aspect, values in aspects.items() if any(value != values[0] for value in values)]


def difference_notes(records: Sequence[RunRecord]) -> list[str]:
    """Return the note about what `list_differences` finds, if anything."""
    differences = list_differences(records)
    return [f"the runs differ in {' and '.join(differences)} (see {RUN_RECORD})"] if differences else []


def spread_note(runs: Runs) -> list[str]:
    """Return the note that explains ±, if an experiment has several seeds."""
    return [SPREAD_NOTE] if any(len(seeds) > 1 for seeds in runs.values()) else []
