"""Tables of numbers with one row per model: the paper's number, ours, their difference and a p-value."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from statistics import mean

from relumt.console import print_status
from relumt.papers import format_printed, printed_values
from relumt.tables.context import P_VALUE_NOTES, Runs, TableContext, spread_note
from relumt.tables.experiments import Experiment
from relumt.tables.measures import BLEU_TOKENIZED, Measure
from relumt.tables.rendering import RenderedTable
from relumt.tables.runs import Run, any_diverged, require_comparable
from relumt.tables.speeds import decoding_speed_tables
from relumt.tables.table import Table


@dataclass(frozen=True)
class Column:
    """A column of the paper's table.

    Attributes:
        dataset: name in configs/datasets.
        measure: what is shown of its runs.
        paper_column: its name in papers.json, "" if the paper does not have it.
        same_corpus: whether the paper's numbers are for this dataset; only then do differences make sense.
        measure_by_row: row label -> measure, for rows that show a different one than `measure`.
    """

    dataset: str
    measure: Measure
    paper_column: str = ""
    same_corpus: bool = False
    measure_by_row: Mapping[str, Measure] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """The title of our numbers."""
        return f"{self.measure.label}, {self.dataset}"

    def measure_of(self, row: str) -> Measure:
        """Return what is shown in a row."""
        return self.measure_by_row.get(row, self.measure)


@dataclass(frozen=True)
class ScoreTable(Table):
    """A table of a paper with one row per model.

    Attributes:
        rows: label in papers.json -> model in configs/models.
        columns: preset -> columns.
        baseline: the row that the others are tested against, "" for no significance tests.
        needs_analysis: whether columns show measures of analysis.json.
        notes: explanations below the table.
    """

    rows: Mapping[str, str]
    columns: Mapping[str, Sequence[Column]]
    baseline: str = ""
    needs_analysis: bool = False
    notes: tuple[str, ...] = ()

    def experiments(self, preset: str) -> list[Experiment]:
        """See Table."""
        return [self.experiment(model, column) for column in self.columns[preset] for model in self.rows.values()]

    def experiment(self, model: str, column: Column) -> Experiment:
        """Return the experiment of a cell."""
        return Experiment(column.dataset, model, needs_analysis=self.needs_analysis)

    def render(self, context: TableContext) -> list[RenderedTable]:
        """See Table."""
        columns = self.columns[context.preset]
        found = context.find_runs(self.experiments(context.preset))
        if self.needs_analysis:
            context.warn_not_analyzed(found)
        titled_cells = [("", list(self.rows))]
        for column in columns:
            runs = {row: found[self.experiment(model, column)] for row, model in self.rows.items()}
            require_comparable(chain(*runs.values()), column.measure.metric or BLEU_TOKENIZED.metric)
            self.print_unmeasured(column, runs)
            titled_cells += self.render_column(column, runs, context)
        titles = [title for title, _ in titled_cells]
        rows = list(zip(*(cells for _, cells in titled_cells), strict=True))
        notes = self.notes_below(columns, found, context)
        tables = [RenderedTable(context.caption(self.title), titles, rows, notes)]
        if self.speed_benchmark:
            datasets = dict.fromkeys(column.dataset for column in columns)
            tables += decoding_speed_tables(self.paper, self.item, self.rows, datasets, context)
        return tables

    def render_column(
        self, column: Column, runs: Mapping[str, Sequence[Run]], context: TableContext
    ) -> list[tuple[str, list[str]]]:
        """Return what is shown for a column of the paper: titles and the cells below each."""
        columns = [(column.title, [column.measure_of(row).format_mean(runs[row]) for row in self.rows])]
        if column.paper_column:
            printed = [format_printed(self.paper, self.item, row, column.paper_column) for row in self.rows]
            columns.insert(0, (f"[{self.paper}] {column.paper_column}", printed))
        if column.same_corpus:
            columns.append(("difference", [self.difference(row, column, runs[row]) for row in self.rows]))
        if self.baseline and column.measure.metric:
            p_values = [
                "" if row == self.baseline else format_p_values(runs[row], runs[self.baseline], column, context.test)
                for row in self.rows
            ]
            columns.append((f"p against {self.baseline}", p_values))
        return columns

    def difference(self, row: str, column: Column, runs: Sequence[Run]) -> str:
        """Return our mean minus the paper's number, "" without either."""
        measure = column.measure_of(row)
        ours, paper = measure.values(runs), printed_values(self.paper, self.item, row)[column.paper_column]
        return f"{mean(ours) - paper:+{measure.format_spec}}" if ours and paper is not None else ""

    def print_unmeasured(self, column: Column, runs: Mapping[str, Sequence[Run]]) -> None:
        """Print which models have no value although their runs were analyzed."""
        models = [
            model
            for row, model in self.rows.items()
            if runs[row]
            and not any_diverged(runs[row])
            and all(run.analysis or not self.needs_analysis for run in runs[row])
            and not column.measure_of(row).values(runs[row])
        ]
        if models:
            listed = ", ".join(dict.fromkeys(models))
            print_status(f"{column.title}: no values for {listed}, whose weights or test set do not allow this measure")

    def notes_below(self, columns: Sequence[Column], found: Runs, context: TableContext) -> list[str]:
        """Return the notes: preset, datasets, significance test, seeds."""
        notes = [context.preset_note, *self.notes]
        for dataset in dict.fromkeys(column.dataset for column in columns):
            runs = chain(*(runs for experiment, runs in found.items() if experiment.dataset == dataset))
            notes += context.notes(dataset, runs, [column.measure for column in columns if column.dataset == dataset])
        if self.baseline:
            notes.append(P_VALUE_NOTES[context.test])
        return notes + spread_note(found)


def format_p_values(systems: Sequence[Run], baselines: Sequence[Run], column: Column, test: str) -> str:
    """Return the p-value of each seed that both have; "" if a seed of either diverged."""
    if any_diverged([*systems, *baselines]):
        return ""
    from relumt.tables.significance import p_values  # sacreBLEU is slow to import

    by_seed = p_values(systems, baselines, column.measure.metric, test)
    return ", ".join(f"seed {seed}: {p:.3f}" if len(systems) > 1 else f"{p:.3f}" for seed, p in by_seed.items())
