"""The base classes of the tables and figures."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import ClassVar

from relumt.papers.comparability import ANALYSES, require_equal
from relumt.papers.context import Runs, TableContext
from relumt.papers.experiments import Experiment
from relumt.papers.measures import BLEU_TOKENIZED, Measure
from relumt.papers.notes import SPREAD_NOTE, describe_runs, unit_note
from relumt.papers.rendering import RenderedTable
from relumt.papers.runs import Run, experiment_flags, require_comparable
from relumt.printed_results import papers, title

PREFIXES = {"RF": "reluformer", "RL": "rela", "IN": "inhibitor"}
"""Paper -> how the names of its tables start on the command line; those of other sources have no prefix."""


@dataclass(frozen=True)
class Table(ABC):
    """A table or figure of a paper, or one of our own.

    Attributes:
        paper, item: its keys in papers.json, for example "RF" and "table4". A table that no paper prints has an item
            that is not in papers.json; its paper, if any, is the one that it belongs to.
        caption: what it shows, if no paper prints it.
        speed_benchmark: script in benchmarks/, and options, that measures the speed of its models, "" for none.
        notes: explanations below the table.
    """

    paper: str
    item: str
    caption: str = field(default="", kw_only=True)
    speed_benchmark: str = field(default="", kw_only=True)
    notes: tuple[str, ...] = field(default=(), kw_only=True)

    @property
    def name(self) -> str:
        """Its name on the command line, for example reluformer_table4."""
        prefix = PREFIXES.get(self.paper)
        return f"{prefix}_{self.item}" if prefix else self.item

    @property
    def title(self) -> str:
        """Its number and caption in the paper, or its own caption."""
        return self.caption or title(self.paper, self.item)

    @property
    def figure_note(self) -> str:
        """What the paper's text says about a figure."""
        return f"the paper: {papers()[self.paper]['figures'][self.item].get('text', 'prints no numbers')}"

    def experiments(self, preset: str) -> list[Experiment]:
        """Return the experiments whose runs it needs."""
        return []

    @abstractmethod
    def render(self, context: TableContext) -> list[RenderedTable]:
        """Return tables of the finished runs; a figure also writes its plot.

        Raises:
            UserError: no run is finished, or the runs cannot be compared.
        """


Body = tuple[Sequence[str], Sequence[Sequence[object]], Sequence[str]]
"""The header, the rows and the last notes of a table."""

ANALYZE_AGAIN = "repeat one with relumt analyze RUN --out RUN --numbers-only --units subwords|words"


@dataclass(frozen=True)
class RunTable(Table):
    """A table of runs, which have to be comparable.

    Attributes:
        needs_analysis: whether it shows measures of analysis.json.
        shows_unanalyzed: whether it then shows what is known of runs without.
        shown_measures: those whose subsets and signatures the notes name.
    """

    needs_analysis: bool = field(default=False, kw_only=True)
    shows_unanalyzed: ClassVar[bool] = False
    shown_measures: ClassVar[Sequence[Measure]] = ()

    def shown(self, found: Runs, preset: str) -> Mapping[str, Sequence[Measure]]:
        """Return the shown measures by dataset."""
        return {experiment.dataset: self.shown_measures for experiment in found}

    def introduction(self, context: TableContext) -> list[str]:
        """Return the first notes."""
        return [context.preset_note, *self.notes]

    @abstractmethod
    def body(self, found: Runs, context: TableContext) -> Body:
        """Return the content of the table."""

    def further_tables(self, found: Runs, context: TableContext) -> list[RenderedTable]:
        """Return what follows the table."""
        return []

    def render(self, context: TableContext) -> list[RenderedTable]:
        """See Table."""
        found = context.find_runs(self.experiments(context.preset))
        varied = {flag for experiment in found for flag in experiment_flags(experiment)}
        shown = self.shown(found, context.preset)
        for dataset, measures in shown.items():
            require_comparable(runs_on(dataset, found), metrics_of(measures) or [BLEU_TOKENIZED.metric], varied)
        if self.needs_analysis:
            analyses = {str(run.folder): run.analysis for run in chain(*found.values()) if run.analysis}
            require_equal(analyses, ANALYSES, ANALYZE_AGAIN)
            analyzed = context.find_analyzed_runs(found)
            found = found if self.shows_unanalyzed else analyzed
        header, rows, last_notes = self.body(found, context)
        notes = self.introduction(context)
        for dataset, measures in shown.items():
            subsets = sorted({measure.subset for measure in measures}) or ["test"]
            notes += describe_runs(dataset, runs_on(dataset, found), subsets, metrics_of(measures))
        if self.needs_analysis:
            notes += unit_note([*chain(*found.values())])
        table = RenderedTable(context.caption(self.title), header, rows, [*notes, *last_notes])
        return [table, *self.further_tables(found, context)]


def runs_on(dataset: str, found: Runs) -> list[Run]:
    """Return all runs on a dataset."""
    return [run for experiment, runs in found.items() if experiment.dataset == dataset for run in runs]


def metrics_of(measures: Sequence[Measure]) -> list[str]:
    """Return the names in run.json of the measures that are scores."""
    return [measure.metric for measure in measures if measure.metric]


def spread_note(found: Runs) -> list[str]:
    """Return the note that explains ±, if an experiment has several seeds."""
    return [SPREAD_NOTE] if any(len(runs) > 1 for runs in found.values()) else []
