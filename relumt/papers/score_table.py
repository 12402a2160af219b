"""Tables of numbers by model, or by variant of a model: the paper's number, ours, their difference and a p-value."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from statistics import mean

from relumt.console import print_status
from relumt.papers.context import P_VALUE_NOTES, Runs, TableContext, spread_note
from relumt.papers.experiments import SMALL, SMOKE, Experiment, by_preset
from relumt.papers.measures import BLEU_TOKENIZED, Measure, external_scores, unit_note
from relumt.papers.rendering import RenderedTable, format_p_value
from relumt.papers.runs import Run, any_diverged, require_comparable
from relumt.papers.seed_statistics import MIN_SEEDS, SEEDS_NOTE, describe_common_seeds, seed_columns
from relumt.papers.speeds import decoding_speed_tables
from relumt.papers.table import Table
from relumt.printed_results import format_printed, printed_values


@dataclass(frozen=True)
class Column:
    """A column of the paper's table.

    Attributes:
        dataset: name in configs/datasets.
        measure: what is shown of its runs.
        paper_column: its name in papers.json, "" if the paper does not have it.
        same_corpus: whether the paper's numbers are for this dataset; only then do differences make sense.
        measure_by_row: row label -> measure, for rows that show a different one than `measure`.
        compared_over_seeds: whether rows are compared with the baseline over seeds; scores always are.
    """

    dataset: str
    measure: Measure
    paper_column: str = ""
    same_corpus: bool = False
    measure_by_row: Mapping[str, Measure] = field(default_factory=dict)
    compared_over_seeds: bool = False

    @property
    def title(self) -> str:
        """The title of our numbers."""
        return f"{self.measure.label}, {self.dataset}"

    def find_measure(self, row: str) -> Measure:
        """Return what is shown in a row."""
        return self.measure_by_row.get(row, self.measure)


@dataclass(frozen=True)
class TableRow:
    """A row of a table.

    Attributes:
        model: name in configs/models.toml.
        paper_row: its label in papers.json, "" if the paper prints no number for it.
        variant, flags: those of its experiments.
        baseline: the row that it is tested against, "" for that of the table.
    """

    model: str
    paper_row: str = ""
    variant: str = ""
    flags: tuple[str, ...] = ()
    baseline: str = ""


Rows = Mapping[str, str | TableRow]
"""Label -> row; the name of a model stands for its runs without further flags, beside the paper's row of that label."""


def resolve_rows(rows: Rows) -> dict[str, TableRow]:
    """Return the rows of the models that are given by name only, too."""
    return {label: TableRow(row, paper_row=label) if isinstance(row, str) else row for label, row in rows.items()}


@dataclass(frozen=True)
class RowVariant:
    """Further flags of the runs of some rows, the variant of these runs, and how the labels of the rows end."""

    label: str
    variant: str
    flags: tuple[str, ...]

    def apply(self, rows: Rows, baseline: str = "") -> dict[str, TableRow]:
        """Return the rows of the runs with these flags.

        Args:
            rows: the rows without these flags.
            baseline: the one of them against whose variant the others are tested, "" for the baseline of the table.
        """
        return {
            f"{label}, {self.label}": replace(
                row,
                variant=self.variant,
                flags=self.flags,
                baseline=f"{baseline}, {self.label}" if baseline and label != baseline else "",
            )
            for label, row in resolve_rows(rows).items()
        }


Columns = dict[str, tuple[Column, ...]]
"""Preset -> columns."""


def columns_on_one_corpus(dataset: str, measures: dict[str, Measure], *extra: Measure) -> Columns:
    """Return columns for measures by the paper's column, and for extra measures that the paper does not have."""
    return {
        preset: (
            *(Column(name, measure, column, preset == "paper") for column, measure in measures.items()),
            *(Column(name, measure) for measure in extra),
        )
        for preset, name in by_preset(dataset).items()
    }


def columns_per_corpus(measure: Measure, datasets: dict[str, str], shown_in_small: str = "") -> Columns:
    """Return one column per corpus for preset paper, else a single one.

    Args:
        measure: what is shown.
        datasets: the paper's column -> dataset.
        shown_in_small: the paper's column beside the single one, "" for none.
    """
    return {
        "paper": tuple(Column(name, measure, column, True) for column, name in datasets.items()),
        "small": (Column(SMALL, measure, shown_in_small),),
        "smoke": (Column(SMOKE, measure, shown_in_small),),
    }


def same_names(*models: str) -> dict[str, str]:
    """Return rows whose label in papers.json is the name of the model."""
    return {model: model for model in models}


@dataclass(frozen=True)
class ScoreTable(Table):
    """A table of a paper with one row per model, or per variant of a model.

    Attributes:
        rows: the rows by label.
        columns: preset -> columns.
        baseline: the row that the others are tested against, "" for no significance tests.
        needs_analysis: whether columns show measures of analysis.json.
        notes: explanations below the table.
    """

    rows: Rows
    columns: Mapping[str, Sequence[Column]]
    baseline: str = ""
    needs_analysis: bool = False
    notes: tuple[str, ...] = ()

    def experiments(self, preset: str) -> list[Experiment]:
        """See Table."""
        rows = self.resolved_rows.values()
        return [self.experiment(row, column) for column in self.columns[preset] for row in rows]

    @property
    def resolved_rows(self) -> dict[str, TableRow]:
        """Label -> row."""
        return resolve_rows(self.rows)

    @property
    def baselines(self) -> dict[str, str]:
        """Label -> the label of the row that it is tested against."""
        return {label: row.baseline or self.baseline for label, row in self.resolved_rows.items()}

    def experiment(self, row: TableRow, column: Column) -> Experiment:
        """Return the experiment of a cell."""
        return Experiment(column.dataset, row.model, row.variant, row.flags, self.needs_analysis)

    def render(self, context: TableContext) -> list[RenderedTable]:
        """See Table."""
        found = context.find_runs(self.experiments(context.preset))
        columns = [*self.columns[context.preset], *external_columns(self.columns[context.preset], found)]
        if self.needs_analysis:
            context.warn_not_analyzed(found)
        titled_cells = [("", list(self.rows))]
        for column in columns:
            runs = self.runs_by_row(column, found)
            metric = column.measure.metric or BLEU_TOKENIZED.metric
            require_comparable(chain(*runs.values()), metric, self.varied_flags(context.preset))
            self.print_unmeasured(column, runs)
            titled_cells += self.render_column(column, runs, context)
        titles, cells = zip(*titled_cells, strict=True)
        rows, notes = list(zip(*cells, strict=True)), self.notes_below(columns, found, context)
        tables = [RenderedTable(context.caption(self.title), list(titles), rows, notes)]
        if self.speed_benchmark:
            datasets = dict.fromkeys(column.dataset for column in columns)
            models = {label: row.model for label, row in self.resolved_rows.items()}
            tables += decoding_speed_tables(self.paper, self.item, models, datasets, found, context)
        return tables

    def runs_by_row(self, column: Column, found: Runs) -> dict[str, Sequence[Run]]:
        """Return label -> the runs that a row shows in a column."""
        return {label: found[self.experiment(row, column)] for label, row in self.resolved_rows.items()}

    def is_compared_over_seeds(self, column: Column) -> bool:
        """Return whether the rows of a column are compared with the baseline over seeds."""
        return bool(self.baseline and (column.measure.metric or column.compared_over_seeds))

    def render_column(
        self, column: Column, runs: Mapping[str, Sequence[Run]], context: TableContext
    ) -> list[tuple[str, list[str]]]:
        """Return what is shown for a column of the paper: titles and the cells below each."""
        columns = [(column.title, [column.find_measure(row).format_mean(runs[row]) for row in self.rows])]
        if column.paper_column:
            labels = [row.paper_row for row in self.resolved_rows.values()]
            printed = [
                format_printed(self.paper, self.item, label, column.paper_column) if label else "" for label in labels
            ]
            columns.insert(0, (f"[{self.paper}] {column.paper_column}", printed))
        if column.same_corpus:
            columns.append(("difference", [self.difference(row, column, runs[row]) for row in self.rows]))
        if self.baseline and (metric := column.measure.metric):
            p_values = [
                "" if label == baseline else format_p_values(runs[label], runs[baseline], metric, context.test)
                for label, baseline in self.baselines.items()
            ]
            columns.append((f"p against {self.baseline}", p_values))
        if self.is_compared_over_seeds(column):
            columns += seed_columns(self.baselines, runs, column.measure)
        return columns

    def difference(self, label: str, column: Column, runs: Sequence[Run]) -> str:
        """Return our mean minus the paper's number, "" without either."""
        measure, paper_row = column.find_measure(label), self.resolved_rows[label].paper_row
        paper = printed_values(self.paper, self.item, paper_row)[column.paper_column] if paper_row else None
        ours = measure.values(runs)
        return f"{mean(ours) - paper:+{measure.format_spec}}" if ours and paper is not None else ""

    def print_unmeasured(self, column: Column, runs: Mapping[str, Sequence[Run]]) -> None:
        """Print which rows have no value although their runs were analyzed."""
        rows = [
            row
            for row in self.rows
            if runs[row]
            and not any_diverged(runs[row])
            and all(not self.needs_analysis or run.analysis for run in runs[row])
            and not column.find_measure(row).values(runs[row])
        ]
        if rows:
            print_status(f"{column.title}: no values for {', '.join(rows)}, {column.measure.why_missing}")

    def notes_below(self, columns: Sequence[Column], found: Runs, context: TableContext) -> list[str]:
        """Return the notes: preset, datasets, significance test, seeds."""
        notes = [context.preset_note, *self.stand_in_note(context.preset), *self.notes]
        for dataset in dict.fromkeys(column.dataset for column in columns):
            runs = chain(*(runs for experiment, runs in found.items() if experiment.dataset == dataset))
            notes += context.notes(dataset, runs, [column.measure for column in columns if column.dataset == dataset])
        if self.needs_analysis:
            notes += unit_note(chain(*found.values()))
        if self.baseline:
            notes.append(P_VALUE_NOTES[context.test])
            if any(len(runs) >= MIN_SEEDS for runs in found.values()):
                notes.append(SEEDS_NOTE)
            notes += self.common_seeds_notes(columns, found)
        return notes + spread_note(found)

    def common_seeds_notes(self, columns: Sequence[Column], found: Runs) -> list[str]:
        """Return notes that name the seeds of comparisons that leave out some; one for all columns with the same."""
        titles: dict[str, list[str]] = {}
        for column in filter(self.is_compared_over_seeds, columns):
            if described := describe_common_seeds(self.baselines, self.runs_by_row(column, found), column.measure):
                titles.setdefault(described, []).append(column.title)
        return [f"compared only {seeds} ({'; '.join(compared)})" for seeds, compared in titles.items()]

    def stand_in_note(self, preset: str) -> list[str]:
        """Return the note that names the corpora of the table's paper, if it has one and this preset has others."""
        ours, papers = (list(dict.fromkeys(column.dataset for column in self.columns[p])) for p in (preset, "paper"))
        if self.caption or ours == papers:
            return []
        note = f"{', '.join(ours)} instead of the paper's {', '.join(papers)}"
        return [f"{note} ({len(ours)} instead of {len(papers)} corpora)" if len(ours) < len(papers) else note]


def external_columns(columns: Sequence[Column], found: Runs) -> list[Column]:
    """Return a column for each score by another program that runs have, on the datasets whose BLEU is shown."""
    return [
        Column(dataset, measure)
        for dataset in dict.fromkeys(column.dataset for column in columns if column.measure.metric)
        for measure in external_scores(
            run for experiment, runs in found.items() if experiment.dataset == dataset for run in runs
        )
    ]


def format_p_values(systems: Sequence[Run], baselines: Sequence[Run], metric: str, test: str) -> str:
    """Return the p-value of each seed that both have, "-" for one without; "" if a seed of either diverged."""
    if any_diverged([*systems, *baselines]):
        return ""
    from relumt.papers.significance import p_values  # sacreBLEU is slow to import

    by_seed = p_values(systems, baselines, metric, test)
    formatted = {seed: "-" if p is None else format_p_value(p) for seed, p in by_seed.items()}
    return ", ".join(f"seed {seed}: {p}" if len(systems) > 1 else p for seed, p in formatted.items())
