"""Reproduce a table or figure of a paper: train its models, measure speeds, write its report, print the table.

A table without translation models is measured by a module of its own, which takes the arguments after --flags (with
scripts/reproduce.sh: after --).

Existing results are reused. The exit status is 1 if a run, a benchmark or the report failed; the table then
has empty cells. It is 2 if the request is invalid or existing runs have other settings; then no table is printed.
"""

import argparse
import shlex
import subprocess
import sys
from pathlib import Path

from relumt.arguments import given_flags
from relumt.commands import grid
from relumt.console import print_status
from relumt.errors import UserError
from relumt.papers import TABLES, get_table
from relumt.papers.context import SIGNIFICANCE_TESTS, TableContext
from relumt.papers.grid.measurements import measure_speed, write_report
from relumt.papers.measured import MeasuredTable
from relumt.papers.rendering import FORMATS

RUN_OPTIONS = ("seeds", "only", "jobs", "gpus_per_job", "jobs_per_gpu", "slurm")
"""Options of `relumt grid` that have no effect on tables without runs."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `relumt grid`, and those that say how to print the table."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = table_list()
    parser.add_argument("name", nargs="?", help="a table or figure, listed below")
    grid.add_options(parser)
    parser.add_argument(
        "--format", default="markdown", choices=list(FORMATS), help="format of the table (default: markdown)"
    )
    parser.add_argument("--out", type=Path, help="folder for the plots of a figure (default: the folder of all runs)")
    parser.add_argument(
        "--test", default="bootstrap", choices=list(SIGNIFICANCE_TESTS), help="significance test (default: bootstrap)"
    )


def run(arguments: argparse.Namespace) -> None:
    """Run the steps one after the other; see above for the exit status."""
    if arguments.name is None:
        raise UserError("name a table or figure; relumt reproduce --help lists them")
    table = get_table(arguments.name)
    context = TableContext(
        arguments.name, arguments.runs, arguments.preset, arguments.out or arguments.runs, arguments.test
    )
    if isinstance(table, MeasuredTable):
        refuse_run_options(arguments, table.module)
        succeeded = run_module(table, context, arguments)
    else:
        if not table.experiments(context.preset):
            refuse_run_options(arguments, None)
        succeeded = make_runs_and_speeds(context, arguments)
    if arguments.dry_run:
        return
    print("\n\n".join(map(FORMATS[arguments.format], table.render(context))))
    if not succeeded:
        raise SystemExit(1)


def refuse_run_options(arguments: argparse.Namespace, module: str | None) -> None:
    """Raise UserError if options are given that only affect runs; `module` measures the table instead, if any does."""
    advice = f"; python -m {module} --help lists what can follow --flags (scripts/reproduce.sh: --)" if module else ""
    if given := given_flags(arguments, RUN_OPTIONS, grid.add_options):
        raise UserError(
            f"{arguments.name} has no runs, so {', '.join(given)} would have no effect; leave it out{advice}"
        )


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


def make_runs_and_speeds(context: TableContext, arguments: argparse.Namespace) -> bool:
    """Make the runs of a table, then measure its speeds and write its report; return whether all succeeded."""
    all_made = make_runs(arguments)
    return all_made if arguments.dry_run else all_made & measure(context, arguments)


def make_runs(arguments: argparse.Namespace) -> bool:
    """Make the runs that are missing, if the table has any; return whether all succeeded."""
    if not get_table(arguments.name).experiments(arguments.preset):
        return True
    try:
        grid.run(arguments)
    except SystemExit as error:
        if error.code != 1:  # 1: some runs failed, the others are worth a table
            raise
        return False
    return True


def measure(context: TableContext, arguments: argparse.Namespace) -> bool:
    """Measure speeds and write the report if the table has any; return whether that succeeded."""
    table = get_table(context.name)
    if not (table.speed_benchmark or table.report_sentences):
        return True
    if arguments.slurm is not None:
        print_status(
            "no speeds or report with --slurm: run the command again on a node of the cluster, without --slurm"
        )
        return True
    measured = True
    if table.speed_benchmark:
        measured = measure_speed(context, table.speed_benchmark, arguments.root, arguments.flags)
    if table.report_sentences:
        measured &= write_report(context, table.report_sentences)
    return measured


def table_list() -> str:
    """Return the names of all tables and figures with their titles, one per line."""
    width = max(map(len, TABLES))
    return "\n".join(["tables and figures:", *(f"  {name:{width}}  {table.title}" for name, table in TABLES.items())])
