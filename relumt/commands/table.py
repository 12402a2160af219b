"""Print scored and diverged runs as tables, one per dataset; or, given a name, a table or figure of a paper.

Runs that cannot be compared are refused by name: their scores have different signatures, test sets or flags of
translation, or seeds of one model were trained with different flags.
"""

import argparse
from pathlib import Path

from relumt.errors import UserError
from relumt.papers import TABLES, get_table
from relumt.papers.context import SIGNIFICANCE_TESTS, TableContext
from relumt.papers.experiments import PRESETS
from relumt.papers.overview import overview_tables
from relumt.papers.rendering import FORMATS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments: which table, the folder of the runs, and the format."""
    parser.add_argument("name", nargs="?", help=f"table or figure of a paper: {', '.join(TABLES)}")
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="folder of all runs (default: runs)")
    parser.add_argument("--dataset", help="without a name: only this dataset (default: one table per dataset)")
    parser.add_argument("--preset", choices=list(PRESETS), help="which runs a paper's table needs (default: paper)")
    parser.add_argument("--format", default="markdown", choices=list(FORMATS), help="(default: markdown)")
    parser.add_argument("--out", type=Path, help="folder for the plots of a figure (default: that of the runs)")
    parser.add_argument(
        "--test",
        choices=list(SIGNIFICANCE_TESTS),
        help="significance test of score differences in a paper's table (default: bootstrap)",
    )


def run(arguments: argparse.Namespace) -> None:
    """Print the tables."""
    if arguments.name is None:
        for option in ("preset", "out", "test"):
            if getattr(arguments, option):
                raise UserError(f"--{option} needs the name of a paper's table: {', '.join(TABLES)}")
        tables = overview_tables(arguments.runs, arguments.dataset)
    else:
        if arguments.dataset:
            raise UserError(f"--dataset cannot be combined with {arguments.name}; choose its datasets with --preset")
        preset, test = arguments.preset or "paper", arguments.test or "bootstrap"
        context = TableContext(arguments.name, arguments.runs, preset, arguments.out or arguments.runs, test)
        tables = get_table(arguments.name).render(context)
    print("\n\n".join(map(FORMATS[arguments.format], tables)))
