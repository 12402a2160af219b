"""Tables that a module of relumt measures, because none of their systems is a translation model.

`python -m MODULE --preset PRESET --out FOLDER` makes what is missing in FOLDER and prints to stderr. Its exit status is
1 if a measurement failed and 2 if the request is invalid. `scripts/reproduce.sh NAME -- OPTION…` adds options.
"""

from abc import abstractmethod
from dataclasses import dataclass
from pathlib import Path

from relumt.tables.context import TableContext
from relumt.tables.experiments import Experiment
from relumt.tables.rendering import RenderedTable
from relumt.tables.table import Table


@dataclass(frozen=True)
class MeasuredTable(Table):
    """A table without runs.

    Attributes:
        module: what measures it, for example "relumt.one_layer".
    """

    module: str

    def experiments(self, preset: str) -> list[Experiment]:
        """Return no experiments."""
        return []

    @staticmethod
    def results_folder(context: TableContext) -> Path:
        """Return the folder that its module writes its results to."""
        return context.runs / f"{context.name}-{context.preset}"

    @abstractmethod
    def render(self, context: TableContext) -> list[RenderedTable]:
        """Return tables of what was measured.

        Raises:
            UserError: nothing was measured.
        """
