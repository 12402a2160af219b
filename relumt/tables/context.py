"""Making a table: where its runs are, which preset, and what all tables say of them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from relumt.console import print_status
from relumt.errors import UserError
from relumt.runs.record import RECORD
from relumt.tables.experiments import PRESETS, Experiment
from relumt.tables.measures import Measure
from relumt.tables.runs import LEAST_BLEU, Run, diverged

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TESTS = {"bootstrap": "bs", "randomization": "ar"}
"""How differences are tested → what sacreBLEU calls it: 1,000 samples of the test set, or 10,000 trials."""

ABOUT_P = {
    "bootstrap": "p: sacreBLEU's paired bootstrap, which counts one side, so that systems that are as good as each "
    "other have about 0.4; --test randomization counts both",
    "randomization": "p: sacreBLEU's paired approximate randomization, of both sides",
}
"""What is said of p below a table."""


DIVERGED = "-"
"""What stands for a run that diverged, as in the papers."""

MADE_WITH = {
    "versions of packages": lambda record: record.provenance.environment.versions,
    "the revision of relumt": lambda record: replace(record.provenance.environment.revision, commit=""),
    "the kind of device": lambda record: record.provenance.environment.device.name,
}
"""What may differ among a table's runs, and is then said below it."""

SPREAD = "±: standard deviation over seeds"


@dataclass(frozen=True)
class TableContext:
    """What a table is made of.

    Attributes:
        name: the table's, in TABLES.
        runs: folder of all runs.
        preset: which of its datasets.
        out: folder for plots.
        test: how differences are tested, a name in TESTS.
    """

    name: str
    runs: Path
    preset: str
    out: Path
    test: str = "bootstrap"

    @property
    def command(self) -> str:
        """What makes the runs."""
        return f"scripts/reproduce.sh {self.name} --preset {self.preset}"

    @property
    def of_preset(self) -> str:
        """The preset and what it is, for the notes of a sheet."""
        return f"preset {self.preset}: {PRESETS[self.preset]}"

    def caption(self, title: str) -> str:
        """Of a sheet."""
        return f"{title}; preset {self.preset}"

    def plotted(self, figure: "Figure") -> str:
        """Write a figure; returns where it is, for the notes of its sheet."""
        from relumt.analysis.plots import save_figure

        name = f"{self.name}-{self.preset}"
        save_figure(figure, self.out, name)
        return f"plot: {self.out / name}.png, .svg"

    def require_any(self, found: Mapping[Experiment, Sequence[Run]]) -> None:
        """Say which cells have no run; raise UserError if none has."""
        missing = [str(cell.seeds_folder(self.runs)) for cell, runs in found.items() if not runs]
        if not any(found.values()):
            raise UserError(f"no finished run in {', '.join(missing)}; make them with {self.command}")
        if missing:
            print_status(
                f"no finished run in {', '.join(missing)}; their cells are empty; make them with {self.command}"
            )

    def warn_not_analyzed(self, found: Mapping[object, Sequence[Run]]) -> list[Run]:
        """The runs that `relumt analyze` has not measured, and says so; those that diverged need none."""
        without = [run for runs in found.values() for run in runs if not run.diverged and run.analysis is None]
        if without:
            print_status(
                f"{', '.join(str(run.folder) for run in without)}: not analysed; what that measures is left out; "
                f"make it with {self.command}"
            )
        return without

    def p_values(self, systems: Sequence[Run], baselines: Sequence[Run], score: str) -> list[str]:
        """As they are printed, one a seed that both have; none where a seed of either diverged."""
        from relumt.tables.significance import p_values

        if diverged(systems) or diverged(baselines):
            return []
        of_seeds = p_values(systems, baselines, score, TESTS[self.test])
        several = len(systems) > 1
        return [f"seed {seed}: {p:.3f}" if several else f"{p:.3f}" for seed, p in of_seeds.items()]

    def notes_of(self, dataset: str, runs: Iterable[Run], scores: Sequence[Measure] = ()) -> list[str]:
        """What stands below a table of a dataset's runs; `scores` are those that it shows."""
        ended = sorted(runs, key=lambda run: run.seed)
        if not ended:
            return []
        seeds = ", ".join(dict.fromkeys(str(run.seed) for run in ended))
        by_cell: dict[Path, set[int]] = {}
        for run in ended:
            by_cell.setdefault(run.folder.parent, set()).add(run.seed)
        few = [cell.name for cell, of_cell in by_cell.items() if len(of_cell) < len(set(seeds.split(", ")))]
        notes = [f"{dataset}: test set, seeds {seeds}" + (f"; fewer of {', '.join(few)}" if few else "")]
        if first := ended[0].record.provenance.initialization.dataset:
            notes.append(f"{dataset}: trained on {first} first")
        differ = [name for name, of in MADE_WITH.items() if len({str(of(run.record)) for run in ended}) > 1]
        if differ:
            notes.append(f"the runs differ in {' and '.join(differ)} ({RECORD} says which)")
        evaluated = [run.record for run in ended if run.record.is_scored]
        if evaluated:
            notes += [f"{of.label}, {dataset}: `{evaluated[0].test_score(of.score).signature}`" for of in scores]
        if diverged(ended):
            notes.append(
                f"{DIVERGED}: a seed diverged: no gradient was finite any more, or BLEU is below {LEAST_BLEU:g}"
            )
        mixed = [run.record.name for run in ended if run.record.environment_changes]
        if mixed:
            notes.append(f"made in more than one environment (`environment_changes` in {RECORD}): {', '.join(mixed)}")
        return notes
