"""Execute the runs of a paper's table in parallel: train, translate, score and analyze what is missing.

It can be killed at any time and started again: finished runs are skipped, and unfinished ones resume from their last
checkpoint. A run that fails is reported with the end of its log, and the others go on. The exit status is 1 if a run
failed, and 2 if the request is invalid or an existing run has other settings.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rich.console import Console

from relumt.arguments import positive_integer, whole_number
from relumt.console import print_status
from relumt.errors import AttemptFailedError, UserError
from relumt.files import require_writable
from relumt.papers import TABLES, get_table
from relumt.papers.experiments import PRESETS, Experiment
from relumt.papers.grid.jobs import GRID_LOG, Job, JobState, create_jobs
from relumt.papers.grid.local_runner import LocalRunner, group_gpus, visible_gpus
from relumt.papers.grid.slurm_runner import create_executor, run_on_slurm
from relumt.papers.grid.status import GridStatus
from relumt.process import usable_cores
from relumt.runs.dataset_config import configs_folder, require_dataset
from relumt.runs.names import require_path

LOG_LINES = 15
"""Lines of a failed run's log that are printed."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the name of the table, and the options."""
    parser.add_argument("name", help=", ".join(TABLES))
    add_options(parser)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that `relumt reproduce` takes, too: which runs to make, and where."""
    parser.add_argument("--preset", default="paper", choices=list(PRESETS), help="corpora and sizes (default: paper)")
    parser.add_argument(
        "--seeds", type=whole_number, nargs="+", default=[1], metavar="N", help="random seeds (default: 1)"
    )
    parser.add_argument("--only", nargs="+", metavar="MODEL", help="make only the runs of these models")
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="folder of all runs (default: runs)")
    parser.add_argument("--root", type=Path, default=Path(), help="the checkout, which has scripts/ (default: .)")
    parser.add_argument(
        "--jobs",
        type=positive_integer,
        metavar="N",
        help="runs at a time (default and maximum: as many as the GPUs take; default on a CPU: 1)",
    )
    parser.add_argument(
        "--gpus-per-job", type=positive_integer, default=1, metavar="N", help="GPUs that train a run (default: 1)"
    )
    parser.add_argument(
        "--jobs-per-gpu",
        type=positive_integer,
        default=1,
        metavar="N",
        help="runs at a time on one GPU, which a small model leaves idle most of the time (default: 1)",
    )
    parser.add_argument(
        "--slurm",
        nargs="*",
        metavar="KEY=VALUE",
        help="submit to Slurm, with submitit's parameters: timeout_min=600 …",
    )
    parser.add_argument("--dry-run", action="store_true", help="print the commands instead of running them")
    parser.add_argument(
        "--flags",
        nargs=argparse.REMAINDER,
        default=[],
        metavar="…",
        help="all that follows is for fairseq-train",
    )


def run(arguments: argparse.Namespace) -> None:
    """Make the runs; `report` sets the exit status."""
    check_numbers(arguments)
    slurm_parameters = parse_parameters(arguments.slurm or [])
    experiments = select_experiments(arguments)
    if not experiments:
        raise UserError(f"{arguments.name} has no runs; make it with scripts/reproduce.sh {arguments.name}")
    if os.environ.get("DATA_BIN"):
        raise UserError("DATA_BIN is set, but a table may need several datasets; unset it")
    root = arguments.root.resolve()
    if not (root / "scripts" / "run.sh").is_file():
        raise UserError(f"{arguments.root}: no scripts/run.sh in it; give the checkout of relumt with --root")
    require_path(arguments.runs, "--runs")
    require_writable(arguments.runs)
    jobs = create_jobs(experiments, arguments.seeds, arguments.runs, root, arguments.flags)
    data_scripts = missing_data_scripts(experiments, root)
    if arguments.dry_run:
        print(*map(str, data_scripts), *(job.shell_command() for job in jobs), sep="\n")
        return
    run_all = choose_runner(arguments, jobs, slurm_parameters)
    for script in data_scripts:
        make_data_bin(script)
    status = GridStatus(jobs, Console(file=sys.stderr))
    with status.display:
        run_all(status)
    report(status)


def choose_runner(
    arguments: argparse.Namespace, jobs: Sequence[Job], slurm_parameters: Mapping[str, str]
) -> Callable[[GridStatus], None]:
    """Return a function that runs the jobs on this machine or on Slurm; raise UserError if the machine cannot."""
    if arguments.slurm is not None:
        executor = create_executor(arguments.runs / "slurm", "slurm", slurm_parameters)
        return lambda status: run_on_slurm(jobs, executor, status)
    num_parallel = arguments.jobs and min(arguments.jobs, max(1, len(jobs)))
    gpu_groups = assign_gpus(num_parallel, arguments.gpus_per_job, arguments.jobs_per_gpu)
    threads = max(1, usable_cores() // len(gpu_groups))
    return lambda status: LocalRunner(status, gpu_groups, threads=threads).run(jobs)


def check_numbers(arguments: argparse.Namespace) -> None:
    """Raise UserError for numbers that contradict each other."""
    if len(set(arguments.seeds)) < len(arguments.seeds):
        raise UserError("--seeds must be different numbers; give each seed once")
    if arguments.slurm is not None and (arguments.jobs or max(arguments.gpus_per_job, arguments.jobs_per_gpu) > 1):
        raise UserError(
            "--jobs, --gpus-per-job and --jobs-per-gpu apply to this machine; with Slurm, give --slurm "
            "gpus_per_node=2 …"
        )
    if min(arguments.gpus_per_job, arguments.jobs_per_gpu) > 1:
        raise UserError("--gpus-per-job and --jobs-per-gpu exclude each other; drop one of them")


def parse_parameters(settings: Sequence[str]) -> dict[str, str]:
    """Split KEY=VALUE settings; raise UserError for one without "="."""
    for setting in settings:
        if "=" not in setting:
            raise UserError(f"--slurm {setting}: not KEY=VALUE; give slurm_partition=gpu, for example")
    return dict(setting.split("=", 1) for setting in settings)


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


def assign_gpus(jobs: int | None, gpus_per_job: int, jobs_per_gpu: int) -> list[list[str]]:
    """Return the GPUs of each job that runs at a time; raise UserError if there are too few for one."""
    gpus = visible_gpus()
    groups = group_gpus(jobs, gpus, gpus_per_job, jobs_per_gpu)
    if not groups and not gpus:
        raise UserError("--gpus-per-job and --jobs-per-gpu: this machine has no GPU; drop them, or give --jobs")
    if not groups:
        raise UserError(f"--gpus-per-job {gpus_per_job}: this machine has {len(gpus)} GPUs; give a smaller number")
    return groups


def report(status: GridStatus) -> None:
    """Print the outcomes, with the end of the log of each failed or refused run; set the exit status."""
    refused, failed = status.jobs_in(JobState.REFUSED), status.jobs_in(JobState.FAILED)
    for job in [*refused, *failed]:
        print_end_of_log(job, status.states[job])
    counts = {state: len(status.jobs_in(state)) for state in JobState}
    summary = [f"{counts[JobState.DONE]} runs done"]
    summary += [f"{counts[state]} {state}" for state in (JobState.DIVERGED, JobState.REFUSED) if counts[state]]
    print_status(", ".join([*summary, f"{counts[JobState.FAILED]} failed"]))
    if refused or failed:
        raise SystemExit(2 if refused else 1)


def print_end_of_log(job: Job, state: JobState) -> None:
    """Print the last lines of a job's log."""
    log = job.folder / GRID_LOG
    lines = log.read_text(encoding="utf-8", errors="replace").rstrip().split("\n") if log.is_file() else []
    print_status(f"{job.name} {state}; the end of {log}:")
    print(*(f"    {line[:300]}" for line in lines[-LOG_LINES:]), sep="\n", file=sys.stderr)
