"""The papers' tables and figures, made of runs: TABLES, one row each. [RF] is Shen et al. 2023, [RL] Zhang et al. 2021.

A table says which runs it is made of, by preset (`cells`), and makes sheets of those that are there (`make`). `relumt
grid` trains what is missing, `relumt table` prints; a script in scripts/tables/ does both.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Protocol

from relumt.errors import UserError

if TYPE_CHECKING:
    from relumt.tables.context import TableContext
    from relumt.tables.experiments import Experiment
    from relumt.tables.rendering import RenderedTable


class Table(Protocol):
    """A table or figure of a paper."""

    @property
    def title(self) -> str:
        """What it shows, in one line."""

    def experiments(self, preset: str) -> list["Experiment"]:
        """The runs that it is made of."""

    def make(self, study: "TableContext") -> list["RenderedTable"]:
        """Sheets of the runs that are there; a figure also writes its plot.

        Raises:
            UserError: there are none, or they do not compare.
        """


TABLES = {
    "reluformer_table1": "ffn_table:TABLE1",
    "reluformer_table2": "scores:RF_TABLE2",
    "reluformer_table3": "scores:RF_TABLE3",
    "reluformer_table4": "speeds:RF_TABLE4_WITH_SPEED",
    "reluformer_table5": "scores:RF_TABLE5",
    "reluformer_table6": "scores:RF_TABLE6",
    "reluformer_figure1": "ffn_table:FIGURE1",
    "reluformer_figure2": "ffn_table:FIGURE2",
    "reluformer_figure3": "ffn_table:FIGURE3",
    "reluformer_figure4": "figures:RF_FIGURE4",
    "reluformer_figure5": "figures:RF_FIGURE5",
    "reluformer_sweep": "sweep:SWEEP",
    "rela_table1": "scores:RL_TABLE1",
    "rela_table2": "speeds:RL_TABLE2",
    "rela_table3": "scores:RL_TABLE3",
    "rela_table4": "flops:RL_TABLE4",
    "rela_table5": "scores:RL_TABLE5",
    "rela_table6": "scores:RL_TABLE6",
    "rela_figure2": "speeds:RL_FIGURE2",
    "rela_figure3": "figures:RL_FIGURE3",
    "rela_figure4": "figures:RL_FIGURE4",
    "rela_figure5": "figures:RL_FIGURE5",
    "rela_figure6": "figures:RL_FIGURE6",
    "rela_figure7": "figures:RL_FIGURE7",
}
"""Name, which is that of its script in scripts/tables/ → where it is, MODULE:NAME in this package."""


def get_table(name: str) -> Table:
    """The table or figure of that name; raises UserError if there is none."""
    if name not in TABLES:
        raise UserError(f"no table '{name}'; known: {', '.join(TABLES)}")
    module, _, attribute = TABLES[name].partition(":")
    return getattr(import_module(f"{__name__}.{module}"), attribute)
