"""The tables and figures of the papers and of our own studies, made from runs.

[RF] is Shen et al. 2023, [RL] Zhang et al. 2021, [IN] Brännvall 2023, [AF] ZDisket 2024.

A table declares which runs it needs (`experiments`) and renders those that are finished (`render`). `relumt grid`
executes missing runs, `relumt table` prints a table, and `scripts/reproduce.sh` does both.
"""

from operator import attrgetter

from relumt.errors import UserError
from relumt.papers import ffn_table, measured, rela, reluformer, speeds, study
from relumt.papers.table import Table
from relumt.runs.flags import list_known

MODULES = (ffn_table, measured, rela, reluformer, speeds, study)
ALL_TABLES: list[Table] = [table for module in MODULES for table in module.TABLES]
TABLES = {table.name: table for table in sorted(ALL_TABLES, key=attrgetter("name"))}
"""Name on the command line -> table or figure."""


def get_table(name: str) -> Table:
    """Return the table or figure of that name; raise UserError if there is none."""
    if name not in TABLES:
        raise UserError(f"no table '{name}'; {list_known(name, TABLES)}")
    return TABLES[name]
