"""The command that executes the runs of a paper's table."""

import argparse
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from relumt.errors import AttemptFailedError, UserError, print_status
from relumt.files import require_writable
from relumt.papers import TABLES, get_table
from relumt.papers.experiments import PRESETS, Experiment
from relumt.papers.grid.jobs import GRID_LOG, Job, JobState, create_jobs
from relumt.papers.grid.runner import assign_gpus, create_executor, run_locally, run_on_slurm
from relumt.process import positive_integer, seed, usable_cores
from relumt.runs.dataset_config import configs_folder, require_dataset
from relumt.runs.flags import require_path

LOG_LINES = 15
"""Lines of a failed run's log that are printed."""


def add_grid_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the name of the table, and the options."""
    parser.add_argument("name", help=", ".join(TABLES))
    add_options(parser)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that `relumt reproduce` takes, too: which runs to make, and where."""
    add = parser.add_argument
    add("--preset", default="paper", choices=list(PRESETS), help="corpora and sizes (default: paper)")
    add("--seeds", type=seed, nargs="+", default=[1], metavar="N", help="random seeds (default: 1)")
    add("--only", nargs="+", metavar="MODEL", help="make only the runs of these models")
    add("--runs", type=Path, default=Path("runs"), help="folder of all runs (default: runs)")
    add("--root", type=Path, default=Path(), help="the checkout, which has scripts/ (default: .)")
    most = "default and maximum: as many as the GPUs take; default on a CPU: 1, on Slurm: all"
    add("--jobs", type=positive_integer, metavar="N", help=f"runs at a time ({most})")
    exclusive = parser.add_mutually_exclusive_group().add_argument
    exclusive("--gpus-per-job", type=positive_integer, default=1, metavar="N", help="GPUs of a run (default: 1)")
    idle = "which a small model leaves idle most of the time (default: 1)"
    exclusive("--jobs-per-gpu", type=positive_integer, default=1, metavar="N", help=f"runs at a time on a GPU, {idle}")
    parameters = "submit to Slurm, with submitit's parameters: timeout_min=600 …"
    exclusive("--slurm", nargs="*", type=slurm_parameter, metavar="KEY=VALUE", help=parameters)
    add("--dry-run", action="store_true", help="print the commands instead of running them")
    rest = "all that follows is for fairseq-train"
    add("--flags", nargs=argparse.REMAINDER, default=[], metavar="…", help=rest)


def slurm_parameter(text: str) -> tuple[str, str]:
    """Split KEY=VALUE."""
    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text}: not KEY=VALUE; give slurm_partition=gpu, for example")
    return name, value


def grid(arguments: argparse.Namespace) -> None:
    """Execute the runs of a paper's table in parallel: train, translate, score and analyze what is missing.

    It can be killed at any time and started again: finished runs are skipped, and unfinished ones resume from their
    last checkpoint. A run that fails is reported with the end of its log, and the others go on. The exit status is 1 if
    a run failed, and 2 if the request is invalid or an existing run has other settings.
    """
    if not run_grid(arguments):
        raise SystemExit(1)


def run_grid(arguments: argparse.Namespace) -> bool:
    """Do what `grid` does; return whether every run succeeded.

    Raises:
        UserError: the request is invalid.
        SystemExit: an existing run has other settings.
    """
    experiments = select_experiments(arguments)
    if not experiments:
        raise UserError(f"{arguments.name} has no runs; make it with relumt reproduce {arguments.name}")
    for variable, needed in (("DATA_BIN", "datasets"), ("SEED", "seeds, which --seeds lists")):
        if os.environ.get(variable):
            raise UserError(f"{variable} is set, but a table may need several {needed}; unset it")
    root = arguments.root.resolve()
    if not (root / "scripts" / "run.sh").is_file():
        raise UserError(f"{arguments.root}: no scripts/run.sh in it; give the checkout of relumt with --root")
    require_path(arguments.runs, "--runs")
    require_writable(arguments.runs)
    jobs = create_jobs(experiments, arguments.seeds, arguments.runs, root, arguments.flags)
    data_scripts = missing_data_scripts(experiments, root)
    if arguments.dry_run:
        print(*map(str, data_scripts), *(job.shell_command() for job in jobs), sep="\n")
        return True
    run_all = choose_runner(arguments, jobs)
    for script in data_scripts:
        make_data_bin(script)
    return report(run_all())


def choose_runner(arguments: argparse.Namespace, jobs: Sequence[Job]) -> Callable[[], dict[Job, JobState]]:
    """Return what runs the jobs, on this machine or on Slurm; raise UserError if the machine cannot."""
    if arguments.slurm is not None:
        executor = create_executor(arguments.runs / "slurm", "slurm", dict(arguments.slurm))
        return partial(run_on_slurm, jobs, executor, arguments.jobs or len(jobs))
    slots = assign_gpus(arguments.jobs, arguments.gpus_per_job, arguments.jobs_per_gpu)
    return partial(run_locally, jobs, slots, max(1, usable_cores() // min(len(slots), len(jobs))))


def select_experiments(arguments: argparse.Namespace) -> list[Experiment]:
    """Return the table's experiments, or those that --only names; raise UserError if it names another model."""
    experiments = get_table(arguments.name).experiments(arguments.preset)
    models = sorted({experiment.model for experiment in experiments})
    for model in arguments.only or []:
        if model not in models:
            raise UserError(f"--only {model}: not a model of {arguments.name}; its models: {', '.join(models)}")
    return [experiment for experiment in experiments if not arguments.only or experiment.model in arguments.only]


def missing_data_scripts(experiments: Sequence[Experiment], root: Path) -> list[Path]:
    """Return the scripts that make the missing data-bins; raise UserError if a data-bin has no script."""
    datasets = configs_folder(root) / "datasets"
    configs = {experiment.dataset: require_dataset(experiment.dataset, datasets) for experiment in experiments}
    for config in list(configs.values()):
        if config.starts_from:
            configs.setdefault(config.starts_from, require_dataset(config.starts_from, datasets))
    scripts: dict[Path, None] = {}  # a set that keeps its order
    for name, config in configs.items():
        data_bin = config.data_bin
        if data_bin.is_dir():
            continue
        script = root / "data_prep" / f"{data_bin.name}.sh"
        if not script.is_file():
            raise UserError(f"{data_bin}: no data-bin for '{name}'; make it with {config.how_to_make(data_bin)}")
        scripts[script] = None
    return list(scripts)


def make_data_bin(script: Path) -> None:
    """Run a script that makes a data-bin; raise AttemptFailedError if it fails."""
    print_status(f"running {script}")
    if subprocess.run([str(script)], stdout=sys.stderr, check=False).returncode:
        raise AttemptFailedError(f"{script} failed; its messages are above")


def report(outcomes: Mapping[Job, JobState]) -> bool:
    """Print the outcomes, with the end of the log of each failed or refused run; return whether every run succeeded.

    Raises:
        SystemExit: a run was refused.
    """
    for state in (JobState.REFUSED, JobState.FAILED):
        for job in (job for job, outcome in outcomes.items() if outcome == state):
            log = job.folder / GRID_LOG
            lines = log.read_text(encoding="utf-8", errors="replace").rstrip().split("\n") if log.is_file() else []
            print_status(f"{job.name} {state}; the end of {log}:")
            print(*(f"    {line[:300]}" for line in lines[-LOG_LINES:]), sep="\n", file=sys.stderr)
    counts = Counter(outcomes.values())
    summary = [f"{counts[JobState.DONE]} runs done"]
    summary += [f"{counts[state]} {state}" for state in (JobState.DIVERGED, JobState.REFUSED) if counts[state]]
    print_status(", ".join([*summary, f"{counts[JobState.FAILED]} failed"]))
    if counts[JobState.REFUSED]:
        raise SystemExit(UserError.exit_status)
    return not counts[JobState.FAILED]
