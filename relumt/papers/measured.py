"""[IN] Tables 1 to 3, which modules of `relumt.papers.inhibitor` measure: none of their systems is a translation model.

`python -m MODULE --preset PRESET --out FOLDER` makes what is missing in FOLDER and prints to stderr. Its exit status is
1 if a measurement failed and 2 if the request is invalid. `scripts/reproduce.sh NAME -- OPTION…` adds options.
"""

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from relumt.papers.context import TableContext
from relumt.papers.rendering import RenderedTable
from relumt.papers.table import Table


@dataclass(frozen=True)
class MeasuredTable(Table):
    """A table without runs.

    Attributes:
        module: what measures it, for example "relumt.papers.inhibitor.table1". Its function `render` takes the context
            and the folder of results, and returns tables of what was measured.
    """

    module: str

    @staticmethod
    def results_folder(context: TableContext) -> Path:
        """Return the folder that its module writes its results to."""
        return context.runs / f"{context.name}-{context.preset}"

    def render(self, context: TableContext) -> list[RenderedTable]:
        """Return tables of what was measured.

        Raises:
            UserError: nothing was measured, or a result is damaged.
        """
        tables: list[RenderedTable] = import_module(self.module).render(context, self.results_folder(context))
        return tables


TABLES = tuple(
    MeasuredTable("IN", item, module=f"relumt.papers.inhibitor.{item}") for item in ("table1", "table2", "table3")
)
