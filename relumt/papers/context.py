"""What a table needs to be rendered: the folder of its runs, the preset, the folder of plots."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from relumt.errors import UserError, print_status
from relumt.papers.experiments import PRESETS, Experiment
from relumt.papers.runs import Run, find_runs

SIGNIFICANCE_TESTS = {"randomization": "ar", "bootstrap": "bs"}
"""Name on the command line -> sacreBLEU's name: 10,000 trials of randomization or 1,000 bootstrap samples.

The bootstrap's p is P(|d*| − E|d*| > |d|) with d* ~ N(d, σ²), which is below 0.05 for |d| > 1.6 σ: that of 11% of equal
systems.
"""

MIN_CHANGED = 15
"""Lines whose contributions to the score must differ for a p-value.

With n of them, one in 2^(n − 1) random trials has the same difference as the real one. sacreBLEU counts these as less
extreme, so by randomization it would return p = 0.0001 for a single changed translation, whose p-value is 1. Its
bootstrap would return 0.001 for a test set of one document.
"""

Line = tuple[str, Sequence[float], Sequence[float], Mapping[str, Any]]
"""Label, x, y and settings of `matplotlib.axes.Axes.errorbar`, such as a color or the ends of intervals."""

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
    test: str = "randomization"

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

    def plot(self, panels: Mapping[str, Sequence[Line]], y_label: str, **axes: object) -> str:
        """Write a plot as PNG and SVG, with panels side by side; return the note that says where.

        Args:
            panels: title -> lines; lines of the same label, in one or several panels, look the same.
            y_label: label of the vertical axis.
            **axes: settings of all panels, see `matplotlib.axes.Axes.set`.
        """
        from relumt.analysis.plots import Figure, plain_text, save_figure  # matplotlib is optional

        figure = Figure(figsize=(2 + 3.6 * len(panels), 3.6), layout="constrained")
        all_axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        legend = {}
        for ax, (title, lines) in zip(all_axes, panels.items(), strict=True):
            for label, x, y, style in lines:
                legend[plain_text(label)] = ax.errorbar(x, y, marker=".", **style)
            ax.set(title=title, **axes)
            ax.minorticks_off()
        all_axes[0].set_ylabel(plain_text(y_label))
        figure.legend(legend.values(), legend.keys(), loc="outside right upper", fontsize=7, handlelength=4)
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

    def find_analyzed_runs(self, found: Runs) -> Runs:
        """Return the runs that are analyzed or diverged, and print which are not."""
        missing = [str(run.folder) for run in chain(*found.values()) if not run.is_measured]
        if missing:
            print_status(
                f"{', '.join(missing)}: not analyzed, so their measures are left out; analyze them with {self.command}"
            )
        return {experiment: [run for run in runs if run.is_measured] for experiment, runs in found.items()}
