"""Tables of numbers by model, or by variant of a model: the paper's number, ours, their difference and a p-value."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import mean

from relumt.papers.baselines import MIN_SEEDS, P_VALUE_NOTES, SEEDS_NOTE, BaselineColumns
from relumt.papers.context import Runs, TableContext
from relumt.papers.experiments import SMALL, SMOKE, Experiment, by_preset
from relumt.papers.measures import Measure, external_scores
from relumt.papers.rendering import RenderedTable
from relumt.papers.runs import Run
from relumt.papers.speeds import decoding_speed_tables
from relumt.papers.table import Body, RunTable, runs_on, spread_note
from relumt.printed_results import format_printed, papers, printed_values


@dataclass(frozen=True)
class Column:
    """A column of the paper's table.

    Attributes:
        datasets: preset -> name in configs/datasets; other presets do not have the column.
        measure: what is shown of its runs.
        paper_column: its name in papers.json, "" if the paper does not have it.
        measure_by_row: row label -> measure, for rows that show a different one than `measure`.
        compared_over_seeds: whether rows are compared with the baseline over seeds; scores always are.
    """

    datasets: Mapping[str, str]
    measure: Measure
    paper_column: str = ""
    measure_by_row: Mapping[str, Measure] = field(default_factory=dict)
    compared_over_seeds: bool = False

    def title(self, preset: str) -> str:
        """Return the title of our numbers."""
        return f"{self.measure.label}, {self.datasets[preset]}"

    def find_measure(self, row: str) -> Measure:
        """Return what is shown in a row."""
        return self.measure_by_row.get(row, self.measure)


def columns_on_one_corpus(dataset: str, measures: Mapping[str, Measure], *extra: Measure) -> tuple[Column, ...]:
    """Return columns for measures by the paper's column, and for extra measures that the paper does not have."""
    datasets = by_preset(dataset)
    printed = [Column(datasets, measure, column) for column, measure in measures.items()]
    return (*printed, *(Column(datasets, measure) for measure in extra))


def columns_per_corpus(measure: Measure, datasets: Mapping[str, str], shown_in_small: str = "") -> tuple[Column, ...]:
    """Return one column per corpus for preset paper, else a single one.

    Args:
        measure: what is shown.
        datasets: the paper's column -> dataset.
        shown_in_small: the paper's column beside the single one, "" for none.
    """
    printed = [Column({"paper": dataset}, measure, column) for column, dataset in datasets.items()]
    return (*printed, Column({"small": SMALL, "smoke": SMOKE}, measure, shown_in_small))


@dataclass(frozen=True)
class TableRow:
    """A row of a table.

    Attributes:
        model: name in configs/models.toml.
        paper_row: its label in papers.json, if the row is not called so.
        variant, flags: those of its experiments.
        baseline: the row that it is tested against, "" for that of the table.
    """

    model: str
    paper_row: str = ""
    variant: str = ""
    flags: tuple[str, ...] = ()
    baseline: str = ""


Rows = Mapping[str, TableRow]
"""Label -> row."""


def make_rows(*given: str | Mapping[str, str]) -> dict[str, TableRow]:
    """Return rows without flags: of models by label, or of a model that is its own label."""
    by_label = [{one: one} if isinstance(one, str) else one for one in given]
    return {label: TableRow(model) for models in by_label for label, model in models.items()}


@dataclass(frozen=True, kw_only=True)
class ScoreTable(RunTable):
    """A table of a paper with one row per model, or per variant of a model.

    Attributes:
        rows: the rows by label.
        columns: the columns of all presets.
        baseline: the row that the others are tested against, "" for no significance tests.
    """

    rows: Rows
    columns: Sequence[Column]
    baseline: str = ""
    shows_unanalyzed = True

    def experiments(self, preset: str) -> list[Experiment]:
        """See Table."""
        return [
            self.experiment(row, column, preset) for column in self.own_columns(preset) for row in self.rows.values()
        ]

    def own_columns(self, preset: str) -> list[Column]:
        """Return the columns of a preset."""
        return [column for column in self.columns if preset in column.datasets]

    def experiment(self, row: TableRow, column: Column, preset: str) -> Experiment:
        """Return the experiment of a cell."""
        return Experiment(column.datasets[preset], row.model, row.variant, row.flags, self.needs_analysis)

    def shown(self, found: Runs, preset: str) -> dict[str, list[Measure]]:
        """See RunTable."""
        measures: dict[str, list[Measure]] = {}
        for column in self.all_columns(found, preset):
            measures.setdefault(column.datasets[preset], []).append(column.measure)
        return measures

    def all_columns(self, found: Runs, preset: str) -> list[Column]:
        """Return a preset's columns, and those of scores by other programs that runs have, where BLEU is shown."""
        columns = self.own_columns(preset)
        scored = dict.fromkeys(column.datasets[preset] for column in columns if column.measure.metric)
        external = {dataset: external_scores(runs_on(dataset, found)) for dataset in scored}
        return columns + [Column({preset: name}, measure) for name, found in external.items() for measure in found]

    def introduction(self, context: TableContext) -> list[str]:
        """Return the notes on the preset, on the corpora of the paper that it replaces, and those of the table."""
        ours, papers = (
            list(dict.fromkeys(column.datasets[preset] for column in self.own_columns(preset)))
            for preset in (context.preset, "paper")
        )
        note, *notes = super().introduction(context)
        if self.caption or ours == papers:
            return [note, *notes]
        stand_in = f"{', '.join(ours)} instead of the paper's {', '.join(papers)}"
        fewer = f" ({len(ours)} instead of {len(papers)} corpora)" if len(ours) < len(papers) else ""
        return [note, stand_in + fewer, *notes]

    def body(self, found: Runs, context: TableContext) -> Body:
        """See RunTable."""
        titles, cells = [""], [list(self.rows)]
        compared: dict[str, list[str]] = {}
        for column in self.all_columns(found, context.preset):
            runs = {label: found[self.experiment(row, column, context.preset)] for label, row in self.rows.items()}
            shown = self.own_and_printed(column, runs, context.preset)
            if self.baseline and (column.measure.metric or column.compared_over_seeds):
                baselines = {label: row.baseline or self.baseline for label, row in self.rows.items()}
                comparison = BaselineColumns(baselines, runs, column.measure)
                if column.measure.metric:
                    shown.append((f"p against {self.baseline}", comparison.p_values(context.test)))
                shown += comparison.over_seeds()
                if described := comparison.describe_common_seeds():
                    compared.setdefault(described, []).append(column.title(context.preset))
            titles += [title for title, _ in shown]
            cells += [values for _, values in shown]
        notes = [P_VALUE_NOTES[context.test]] if self.baseline else []
        if self.baseline and any(len(runs) >= MIN_SEEDS for runs in found.values()):
            notes.append(SEEDS_NOTE)
        notes += [f"compared only {seeds} ({'; '.join(titles)})" for seeds, titles in compared.items()]
        return titles, list(zip(*cells, strict=True)), [*notes, *spread_note(found)]

    def own_and_printed(
        self, column: Column, runs: Mapping[str, Sequence[Run]], preset: str
    ) -> list[tuple[str, list[str]]]:
        """Return titles and cells: the paper's numbers, ours and, on the paper's own corpus, their difference."""
        shown = [(column.title(preset), [column.find_measure(label).format_mean(runs[label]) for label in self.rows])]
        if column.paper_column:
            rows = map(self.paper_row, self.rows)
            printed = [format_printed(self.paper, self.item, row, column.paper_column) if row else "" for row in rows]
            shown.insert(0, (f"[{self.paper}] {column.paper_column}", printed))
            if preset == "paper":
                shown.append(("difference", [self.difference(label, column, runs[label]) for label in self.rows]))
        return shown

    def paper_row(self, label: str) -> str:
        """Return the label of a row in papers.json, "" if the paper prints no number for it."""
        paper_row = self.rows[label].paper_row or label
        return paper_row if paper_row in papers()[self.paper][self.item]["rows"] else ""

    def difference(self, label: str, column: Column, runs: Sequence[Run]) -> str:
        """Return our mean minus the paper's number, "" without either."""
        measure, paper_row = column.find_measure(label), self.paper_row(label)
        paper = printed_values(self.paper, self.item, paper_row)[column.paper_column] if paper_row else None
        ours = measure.values(runs)
        return f"{mean(ours) - paper:+{measure.format_spec}}" if ours and paper is not None else ""

    def further_tables(self, found: Runs, context: TableContext) -> list[RenderedTable]:
        """Return the tables of decoding speed that the paper has beside its scores, if they were measured."""
        if not self.speed_benchmark:
            return []
        models = {label: row.model for label, row in self.rows.items()}
        return decoding_speed_tables(self.paper, self.item, models, found, context)
