"""What a table needs besides its runs: speeds measured by a script in benchmarks/, and a report with attention maps."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from relumt.console import print_status
from relumt.files import file_sha256
from relumt.papers import get_table
from relumt.papers.context import TableContext
from relumt.papers.runs import Run, find_runs
from relumt.papers.speeds import speed_file
from relumt.runs.dataset_config import configs_folder, require_dataset
from relumt.runs.model_config import read_models
from relumt.runs.record import RUN_RECORD


def measure_speed(context: TableContext, benchmark: str, root: Path, train_flags: Sequence[str]) -> bool:
    """Measure the speed of the table's models; return whether every measurement succeeded.

    Args:
        context: the table and its runs.
        benchmark: script in benchmarks/, and options.
        root: the checkout.
        train_flags: flags of fairseq-train beyond those of configs/.
    """
    if benchmark == "training.py":
        return measure_feedforward_speed(context, root, train_flags)
    script, *options = benchmark.split()
    if context.preset == "smoke":
        options += ["--sample", "1", "--repeats", "1", *(["--steps", "3"] if options else [])]
    models_by_dataset: dict[str, list[str]] = {}
    for experiment in get_table(context.name).experiments(context.preset):
        models_by_dataset.setdefault(experiment.dataset, []).append(experiment.model)
    finished = {(run.experiment.dataset, run.experiment.model) for run in finished_runs(context)}
    succeeded = True
    for dataset, models in models_by_dataset.items():
        baseline = models[0]
        if (dataset, baseline) not in finished:
            print_status(f"no speeds on {dataset}: they are relative to {baseline}, which has no finished run")
            continue
        timed = [model for model in dict.fromkeys(models) if (dataset, model) in finished]
        arguments = [context.runs, dataset, "--models", *timed, "--json", speed_file(context, dataset), *options]
        succeeded &= run_python(root / "benchmarks" / script, *arguments)
    return succeeded


def measure_feedforward_speed(context: TableContext, root: Path, train_flags: Sequence[str]) -> bool:
    """Measure the training speed of all feed-forward variants; return whether this succeeded."""
    dataset = get_table(context.name).experiments(context.preset)[0].dataset
    variants = sorted(name for name in read_models(configs_folder(root)) if name.startswith("ffn_"))
    datasets = configs_folder(root) / "datasets"
    data_bin = require_dataset(dataset, datasets).data_bin
    arguments = [data_bin, "--config", datasets / f"{dataset}.toml", "--models", *variants]
    arguments += ["--baseline", "ffn_relu", "--json", speed_file(context, dataset), "--flags", *train_flags]
    return run_python(root / "benchmarks" / "training.py", *arguments)


def write_report(context: TableContext, sentences: int) -> bool:
    """Write an HTML report of the table's runs with the attention maps of some sentences, unless it is up to date.

    Returns:
        False if writing it failed.
    """
    runs = finished_runs(context)
    if not runs:
        return True
    report = context.runs / f"{context.name}-{context.preset}"
    checksums = "".join(f"{file_sha256(run.folder / RUN_RECORD)}  {run.folder / RUN_RECORD}\n" for run in runs)
    inputs = report / "runs"
    if (report / "report.html").exists() and inputs.is_file() and inputs.read_bytes() == checksums.encode():
        return True
    folders = [run.folder for run in runs]
    if not run_python("-P", "-m", "relumt.cli", "analyze", *folders, "--sentences", sentences, "--out", report):
        return False
    inputs.write_text(checksums, encoding="utf-8")
    return True


def finished_runs(context: TableContext) -> list[Run]:
    """Return the first finished run of each experiment of a table that did not diverge."""
    found: dict[Path, Run] = {}
    for experiment in get_table(context.name).experiments(context.preset):
        for run in find_runs(experiment, context.runs):
            if not run.diverged:
                found.setdefault(run.folder.parent, run)
    return list(found.values())


def run_python(*arguments: object) -> bool:
    """Run Python with these arguments, its output on stderr; return whether it succeeded."""
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, stdout=sys.stderr, check=False).returncode == 0
