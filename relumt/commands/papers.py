"""The commands that print and reproduce the papers' tables and figures."""

import argparse
import shlex
import subprocess
import sys
from pathlib import Path

from relumt.commands.grid import add_options, run_grid
from relumt.errors import UserError, print_status
from relumt.papers import TABLES, get_table
from relumt.papers.context import SIGNIFICANCE_TESTS, TableContext
from relumt.papers.experiments import PRESETS
from relumt.papers.grid.measurements import measure_speed
from relumt.papers.measured import MeasuredTable
from relumt.papers.overview import overview_tables
from relumt.papers.rendering import FORMATS
from relumt.papers.table import Table

RUN_OPTIONS = ("seeds", "only", "jobs", "gpus_per_job", "jobs_per_gpu", "slurm")
"""Options of `relumt grid` that have no effect on tables without runs."""


def add_rendering_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that say how to print a table."""
    add = parser.add_argument
    add("--format", default="markdown", choices=list(FORMATS), help="format of the table (default: markdown)")
    add("--out", type=Path, help="folder for the plots of a figure (default: the folder of all runs)")
    test_help = "significance test of score differences in a paper's table (default: randomization)"
    add("--test", default="randomization", choices=list(SIGNIFICANCE_TESTS), help=test_help)


def add_table_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments: which table, the folder of the runs, and the format."""
    add = parser.add_argument
    add("name", nargs="?", help=f"table or figure of a paper: {', '.join(TABLES)}")
    add("--runs", type=Path, default=Path("runs"), help="folder of all runs (default: runs)")
    add("--dataset", help="without a name: only this dataset (default: one table per dataset)")
    preset_help = "with a name: which runs the table needs (default: paper)"
    add("--preset", default="paper", choices=list(PRESETS), help=preset_help)
    add_rendering_arguments(parser)


def table(arguments: argparse.Namespace) -> None:
    """Print scored and diverged runs as tables, one per dataset; or, given a name, a table or figure of a paper.

    Runs that cannot be compared are refused by name: their scores have different signatures, test sets or flags of
    translation, or seeds of one model were trained with different flags.
    """
    if not arguments.runs.is_dir():
        raise UserError(f"{arguments.runs}: no such folder; give the folder of all runs with --runs")
    if arguments.name is None:
        tables = overview_tables(arguments.runs, arguments.dataset)
    else:
        tables = get_table(arguments.name).render(table_context(arguments))
    print("\n\n".join(map(FORMATS[arguments.format], tables)))


def table_context(arguments: argparse.Namespace) -> TableContext:
    """Return what a table is rendered from."""
    out = arguments.out or arguments.runs
    return TableContext(arguments.name, arguments.runs, arguments.preset, out, arguments.test)


def add_reproduce_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `relumt grid`, and those that say how to print the table."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    width = max(map(len, TABLES))
    lines = [f"  {name:{width}}  {table.title}" for name, table in TABLES.items()]
    parser.epilog = "\n".join(["tables and figures:", *lines])
    parser.add_argument("name", help="a table or figure, listed below")
    add_options(parser)
    add_rendering_arguments(parser)


def reproduce(arguments: argparse.Namespace) -> None:
    """Reproduce a table or figure of a paper: train its models, measure speeds, print the table.

    A table without translation models is measured by a module of its own, which takes the arguments after --flags (with
    scripts/reproduce.sh: after --).

    Existing results are reused. The exit status is 1 if a run or a benchmark failed; the table then
    has empty cells. It is 2 if the request is invalid or existing runs have other settings; then no table is printed.
    """
    table, context = get_table(arguments.name), table_context(arguments)
    if not table.experiments(arguments.preset):
        refuse_run_options(arguments)
    if isinstance(table, MeasuredTable):
        succeeded = run_module(table, context, arguments)
    else:
        succeeded = not table.experiments(arguments.preset) or run_grid(arguments)
        if not arguments.dry_run:
            succeeded &= measure(table, context, arguments)
    if arguments.dry_run:
        return
    print("\n\n".join(map(FORMATS[arguments.format], table.render(context))))
    if not succeeded:
        raise SystemExit(1)


def refuse_run_options(arguments: argparse.Namespace) -> None:
    """Raise UserError if options are given that only affect runs."""
    parser = argparse.ArgumentParser()
    add_options(parser)
    given = [name for name in RUN_OPTIONS if getattr(arguments, name) != parser.get_default(name)]
    if given:
        options = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise UserError(f"{arguments.name} has no runs, so {options} would have no effect; leave it out")


def run_module(table: MeasuredTable, context: TableContext, arguments: argparse.Namespace) -> bool:
    """Run the module that measures a table without runs; return whether all measurements succeeded.

    Raises:
        SystemExit: the module found the request invalid, and said so.
    """
    command = [sys.executable, "-P", "-m", table.module, "--preset", context.preset]
    command += ["--out", str(table.results_folder(context)), *arguments.flags]
    if arguments.dry_run:
        print(shlex.join(command))
        return True
    status = subprocess.run(command, stdout=sys.stderr, check=False).returncode
    if status == 2:
        raise SystemExit(2)
    return status == 0


def measure(table: Table, context: TableContext, arguments: argparse.Namespace) -> bool:
    """Measure speeds if the table has any; return whether that succeeded."""
    if table.speed_benchmark and arguments.slurm is not None:
        print_status("no speeds with --slurm: run the command again on a node, without --slurm")
        return True
    return not table.speed_benchmark or measure_speed(table, context, arguments.root, arguments.flags)
