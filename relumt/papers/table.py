"""The base class of the tables and figures."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from relumt.papers.experiments import Experiment
from relumt.papers.rendering import RenderedTable
from relumt.printed_results import papers, title
from relumt.runs.flags import parse_flags

if TYPE_CHECKING:
    from relumt.papers.context import TableContext


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
        report_sentences: how many sentences its HTML report shows attention maps of, 0 for no report.
    """

    paper: str
    item: str
    caption: str = field(default="", kw_only=True)
    speed_benchmark: str = field(default="", kw_only=True)
    report_sentences: int = field(default=0, kw_only=True)

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

    @abstractmethod
    def experiments(self, preset: str) -> list[Experiment]:
        """Return the experiments whose runs it needs."""

    def varied_flags(self, preset: str) -> list[str]:
        """Return the flags of training that distinguish its experiments beside their models."""
        return sorted({flag for one in self.experiments(preset) for flag in parse_flags(one.flags, self.name)})

    @abstractmethod
    def render(self, context: "TableContext") -> list[RenderedTable]:
        """Return tables of the finished runs; a figure also writes its plot.

        Raises:
            UserError: no run is finished, or the runs cannot be compared.
        """
