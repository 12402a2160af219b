"""The papers' tables and figures, made of runs: TABLES, one row each. [RF] is Shen et al. 2023."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path


@dataclass(frozen=True)
class Table:
    """A table or figure of a paper.

    Attributes:
        module: where it is made.
        function: takes the folder of the runs, the folder for plots and the dataset; returns Markdown.
        script: what makes its runs.
    """

    module: str
    function: str
    script: str

    def make(self, runs: Path, out: Path, dataset: str | None = None) -> str:
        """The Markdown of the runs of `dataset`, or of all; plots go to `out`.

        Raises:
            UserError: runs are missing, or do not compare.
        """
        make: Callable[[Path, Path, str | None], str] = getattr(import_module(self.module), self.function)
        return make(runs, out, dataset)


def _memory(function: str) -> Table:
    return Table("relumt.tables.memory", function, f"scripts/tables/reluformer_{function}.sh")


TABLES = {f"reluformer_{name}": _memory(name) for name in ("table1", "figure1", "figure2", "figure3")}
