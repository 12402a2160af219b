"""Make the runs of a paper's table, side by side: train, translate, score and analyse what is not there yet.

It can be killed at any time and started again: finished runs are skipped, unfinished ones resume from their last
checkpoint. A run that fails is reported with the end of its log and stops no other.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

from rich.console import Console
from rich.live import Live

from relumt.console import print_status
from relumt.errors import UserError
from relumt.grid.guard import guarded
from relumt.grid.jobs import LOG, Job, jobs_of
from relumt.grid.local import Local, gpus, shares_of
from relumt.grid.states import States
from relumt.runs.dataset_config import require_dataset
from relumt.tables import TABLES, get_table
from relumt.tables.experiments import PRESETS, Experiment

END_OF_LOG = 15
"""Lines of a failed run's log that are shown."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the name of the table, and the options."""
    parser.add_argument("name", help=", ".join(TABLES))
    add_options(parser)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what `relumt reproduce` takes too: which runs to make, and where."""
    parser.add_argument("--preset", default="paper", choices=list(PRESETS), help="corpora and sizes (default: paper)")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1], metavar="N", help="random seeds (default: 1)")
    parser.add_argument("--only", nargs="+", metavar="MODEL", help="of the table's models these alone")
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="folder of all runs (default: runs)")
    parser.add_argument("--root", type=Path, default=Path(), help="the checkout, with scripts/ (default: .)")
    parser.add_argument("--jobs", type=int, metavar="N", help="at a time (default and at most: one a GPU; on a CPU: 1)")
    parser.add_argument("--gpus-per-job", type=int, default=1, metavar="N", help="trained on together (default: 1)")
    parser.add_argument(
        "--slurm", nargs="*", metavar="KEY=VALUE", help="submit to Slurm, with submitit's parameters: timeout_min=600 …"
    )
    parser.add_argument("--cluster", default="slurm", choices=["slurm", "local"], help=argparse.SUPPRESS)
    parser.add_argument("--dry-run", action="store_true", help="print every command and run none")
    parser.add_argument(
        "--flags", nargs=argparse.REMAINDER, default=[], metavar="…", help="all that follows is for fairseq-train"
    )


def run(arguments: argparse.Namespace) -> None:
    """Make the runs; see `report` for the exit status."""
    cells = cells_of(arguments)
    if os.environ.get("DATA_BIN"):
        raise UserError("DATA_BIN is set, which is of one dataset; leave it unset for a table")
    if not (arguments.root / "scripts" / "run.sh").is_file():
        raise UserError(f"{arguments.root}: no scripts/run.sh in it; give the checkout of relumt with --root")
    root = arguments.root.resolve()
    jobs = jobs_of(cells, arguments.seeds, arguments.runs, root, arguments.flags)
    to_prepare = missing_data(cells, root)
    if arguments.dry_run:
        print(*map(str, to_prepare), *(job.as_typed() for job in jobs), sep="\n")
        return
    for script in to_prepare:
        prepare(script)
    states = run_all(jobs, arguments)
    report(states)


def prepare(script: Path) -> None:
    """Make a data-bin; raises UserError where that fails."""
    print_status(f"running {script}")
    guard = guarded([str(script)], stdout=sys.stderr)
    try:
        status = guard.wait()
    finally:
        guard.stdin.close()
    if status:
        raise UserError(f"{script} failed; what it said is above")


def cells_of(arguments: argparse.Namespace) -> list[Experiment]:
    """The table's cells, or those of the models asked for; raises UserError for what cannot be."""
    for name in ("jobs", "gpus_per_job"):
        value = getattr(arguments, name)
        if value is not None and value < 1:
            raise UserError(f"--{name.replace('_', '-')} must be positive, not {value}")
    if any(seed < 0 for seed in arguments.seeds) or len(set(arguments.seeds)) < len(arguments.seeds):
        raise UserError("--seeds must be whole numbers from 0, each once")
    parameters(arguments.slurm or [])
    cells = get_table(arguments.name).experiments(arguments.preset)
    models = sorted({cell.model for cell in cells})
    for model in arguments.only or []:
        if model not in models:
            raise UserError(f"--only {model}: not a model of {arguments.name}; its models: {', '.join(models)}")
    return [cell for cell in cells if not arguments.only or cell.model in arguments.only]


def missing_data(cells: Sequence[Experiment], root: Path) -> list[Path]:
    """The scripts that make the data-bins that are not there; raises UserError where there is none for one."""
    scripts: dict[Path, None] = {}
    datasets = Path(os.environ.get("CONFIGS", root / "configs")) / "datasets"
    configs = {experiment.dataset: require_dataset(experiment.dataset, datasets) for experiment in cells}
    for config in list(configs.values()):
        if config.starts_from:
            configs.setdefault(config.starts_from, require_dataset(config.starts_from, datasets))
    for name, config in configs.items():
        data = config.data_bin
        if data.is_dir():
            continue
        script = root / "data_prep" / f"{data.name}.sh"
        if not script.is_file():
            raise UserError(f"{data}: no data-bin of '{name}'; make it with {config.how_to_make(data)}")
        scripts[script] = None
    return list(scripts)


def run_all(jobs: Sequence[Job], arguments: argparse.Namespace) -> States:
    """Run or submit every job, with a live table where somebody watches; returns what became of each."""
    console = Console(file=sys.stderr)
    on_cluster = arguments.slurm is not None
    if on_cluster and (arguments.jobs or arguments.gpus_per_job > 1):
        raise UserError("--jobs and --gpus-per-job are of this machine; Slurm is told with --slurm gpus_per_node=2 …")
    shares = [[] for _ in jobs] if on_cluster else shares_of(arguments.jobs, gpus(), arguments.gpus_per_job)
    if not shares and not on_cluster:
        raise UserError(f"--gpus-per-job {arguments.gpus_per_job}: there are but {len(gpus())} GPUs; give fewer")
    states = States(jobs, console.is_terminal, len(shares))
    with Live(console=console, auto_refresh=False) if console.is_terminal else nullcontext() as live:

        def refresh() -> None:
            if live:
                live.update(states.table(), refresh=True)

        if not on_cluster:
            Local(states, shares, max(1, (os.cpu_count() or 1) // len(shares))).run(jobs, refresh)
        else:
            from relumt.grid import slurm

            folder = arguments.runs / slurm.FOLDER
            slurm.run(jobs, slurm.executor(folder, arguments.cluster, parameters(arguments.slurm)), states, refresh)
        refresh()
    return states


def parameters(given: Sequence[str]) -> dict[str, str]:
    """KEY=VALUE, each; raises UserError for what is not."""
    for one in given:
        if "=" not in one:
            raise UserError(f"--slurm {one}: not KEY=VALUE; slurm_partition=gpu, for example")
    return dict(one.split("=", 1) for one in given)


def report(states: States) -> None:
    """Say what became of all, with the end of each log of what went wrong; exit with status 1 where any run failed,
    and with 2 where any was refused, since what is there is then not what was asked for.
    """
    refused, failed = states.those("refused"), states.those("failed")
    for job in [*refused, *failed]:
        log = job.folder / LOG
        lines = log.read_text(encoding="utf-8", errors="replace").rstrip().split("\n") if log.is_file() else []
        print_status(f"{job.name} {states.of[job]}; the end of {log}:")
        print(*(f"    {line[:300]}" for line in lines[-END_OF_LOG:]), sep="\n", file=sys.stderr)
    some = [f", {len(states.those(state))} {state}" for state in ("diverged", "refused") if states.those(state)]
    print_status(f"{len(states.those('done'))} runs done{''.join(some)}, {len(failed)} failed")
    if refused or failed:
        raise SystemExit(2 if refused else 1)
