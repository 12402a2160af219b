"""Tables of numbers: a row a model, for each column the paper's number, ours, their difference, and a p-value."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from statistics import mean

from relumt.console import print_status
from relumt.papers import format_printed, printed_values, title
from relumt.runs.comparability import average
from relumt.tables.context import ABOUT_P, DIVERGED, SPREAD, TableContext
from relumt.tables.experiments import Experiment
from relumt.tables.measures import Measure
from relumt.tables.rendering import RenderedTable
from relumt.tables.runs import Run, diverged, find_runs, require_comparable

DEFAULT_SCORE = "bleu_tokenized"


@dataclass(frozen=True)
class Row:
    """A row: its name in papers.json, and the model in configs/models that it is."""

    printed: str
    model: str


@dataclass(frozen=True)
class Column:
    """A column of the paper's table.

    Attributes:
        dataset: in configs/datasets.
        measure: what is shown of its runs; or one for each row's name where rows are measured differently.
        printed: the paper's column, "" for none.
        same: the paper's number is of this dataset, so that the two can be subtracted.
    """

    dataset: str
    measure: Measure | dict[str, Measure]
    printed: str = ""
    same: bool = False

    def of(self, row: Row) -> Measure:
        """What is shown in a row."""
        return self.measure if isinstance(self.measure, Measure) else self.measure[row.printed]


@dataclass(frozen=True)
class ScoreTable:
    """A table of a paper.

    Attributes:
        paper, table: in papers.json.
        rows: of models.
        columns: by preset.
        baseline: the row that the others are tested against, "" for none.
        analysed: its runs need an analysis.
    """

    paper: str
    table: str
    rows: tuple[Row, ...]
    columns: dict[str, tuple[Column, ...]]
    baseline: str = ""
    needs_analysis: bool = False
    notes: tuple[str, ...] = field(default=())

    @property
    def title(self) -> str:
        """What it shows, in one line."""
        return title(self.paper, self.table)

    def experiments(self, preset: str) -> list[Experiment]:
        """Its runs."""
        return [self.experiment(row, column) for column in self.columns[preset] for row in self.rows]

    def experiment(self, row: Row, column: Column) -> Experiment:
        """The runs of a row and column."""
        return Experiment(column.dataset, row.model, needs_analysis=self.needs_analysis)

    def render(self, context: TableContext) -> list[RenderedTable]:
        """The table; raises UserError where runs do not compare, or there are none."""
        columns = self.columns[context.preset]
        found = {cell: find_runs(cell, context.runs) for cell in self.experiments(context.preset)}
        context.require_any(found)
        if self.needs_analysis:
            context.warn_not_analyzed(found)
            self.say_what_is_not_measured(columns, found)
        blocks = [self.block(column, found, context) for column in columns]
        head = ["", *chain.from_iterable(block[0] for block in blocks)]
        rows = [[row.printed, *chain.from_iterable(block[1][n] for block in blocks)] for n, row in enumerate(self.rows)]
        return [RenderedTable(context.caption(self.title), head, rows, self.notes_below(columns, found, context))]

    def say_what_is_not_measured(self, columns: Sequence[Column], found: dict[Experiment, list[Run]]) -> None:
        """Say which cells are empty though their runs were analysed."""
        for column in columns:
            there = {row.model: found[self.experiment(row, column)] for row in self.rows}
            lacking = [
                row.model
                for row in self.rows
                if (runs := there[row.model])
                and not diverged(runs)
                and all(run.analysis for run in runs)
                and not values(runs, column.of(row))
            ]
            if lacking:
                label = f"{column.of(self.rows[0]).label}, {column.dataset}"
                of = ", ".join(dict.fromkeys(lacking))
                print_status(f"{label}: none of {of}, whose weights or test set have nothing for it")

    def block(
        self, column: Column, found: dict[Experiment, list[Run]], context: TableContext
    ) -> tuple[list[str], list[list[str]]]:
        """What stands under one column of the paper's: the heads, and each row's cells."""
        of_rows = {row.printed: found[self.experiment(row, column)] for row in self.rows}
        score = column.of(self.rows[0]).score
        require_comparable(chain.from_iterable(of_rows.values()), score or DEFAULT_SCORE)
        parts = [
            (
                f"{column.of(self.rows[0]).label}, {column.dataset}",
                lambda row: shown(of_rows[row.printed], column.of(row)),
            )
        ]
        if column.printed:
            parts.insert(0, (f"[{self.paper}] {column.printed}", lambda row: self.papers_value(row, column)))
        if column.same:
            parts.append(("difference", lambda row: self.difference(row, column, of_rows[row.printed])))
        if self.baseline and score:
            against = of_rows[self.baseline]
            parts.append((f"p against {self.baseline}", lambda row: self.tested(row, of_rows, against, score, context)))
        return [head for head, _ in parts], [[part(row) for _, part in parts] for row in self.rows]

    def papers_value(self, row: Row, column: Column) -> str:
        """What the paper prints, with its digits; empty where it prints nothing, or a dash."""
        return format_printed(self.paper, self.table, row.printed, column.printed)

    def printed(self, row: Row, column: Column) -> float | None:
        """The paper's number."""
        return printed_values(self.paper, self.table, row.printed)[column.printed]

    def difference(self, row: Row, column: Column, runs: Sequence[Run]) -> str:
        """Ours less the paper's, where there are both."""
        ours, theirs = values(runs, column.of(row)), self.printed(row, column)
        return f"{mean(ours) - theirs:+{column.of(row).form}}" if ours and theirs is not None else ""

    def tested(
        self, row: Row, of_rows: dict[str, list[Run]], against: Sequence[Run], score: str, context: TableContext
    ) -> str:
        """p-values seed by seed."""
        if row.printed == self.baseline:
            return ""
        return ", ".join(context.p_values(of_rows[row.printed], against, score))

    def notes_below(
        self, columns: Sequence[Column], found: dict[Experiment, list[Run]], context: TableContext
    ) -> list[str]:
        """Corpus, seeds, signatures, and what the signs mean."""
        notes = [context.of_preset, *self.notes]
        for dataset in dict.fromkeys(column.dataset for column in columns):
            runs = [run for cell, of_cell in found.items() if cell.dataset == dataset for run in of_cell]
            notes += context.notes_of(
                dataset, runs, [m for c in columns if c.dataset == dataset and (m := c.of(self.rows[0])).score]
            )
        if self.baseline:
            notes.append(ABOUT_P[context.test])
        return notes + ([SPREAD] if any(len(runs) > 1 for runs in found.values()) else [])


def values(runs: Sequence[Run], measure: Measure) -> list[float]:
    """The measure of every seed; none if any seed has none or diverged."""
    if diverged(runs):
        return []
    found = [measure.of(run) for run in runs]
    return [] if None in found else found


def shown(runs: Sequence[Run], measure: Measure) -> str:
    """Mean and standard deviation over seeds; a dash where one diverged, nothing where there are none."""
    if diverged(runs):
        return DIVERGED
    found = values(runs, measure)
    return average(found, measure.form) if found else ""
