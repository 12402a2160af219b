"""What a table needs besides its runs: speeds measured by a script in benchmarks/."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from relumt.errors import print_status
from relumt.papers.context import TableContext
from relumt.papers.runs import find_runs
from relumt.papers.speeds import speed_file
from relumt.papers.table import Table
from relumt.runs.dataset_config import configs_folder, read_models, require_dataset


def measure_speed(table: Table, context: TableContext, root: Path, train_flags: Sequence[str]) -> bool:
    """Measure the speed of a table's models; return whether every measurement succeeded.

    Args:
        table: a table with a speed_benchmark.
        context: its runs.
        root: the checkout.
        train_flags: flags of fairseq-train beyond those of configs/.
    """
    experiments = table.experiments(context.preset)
    if table.speed_benchmark == "training.py":
        return measure_feedforward_speed(experiments[0].dataset, context, root, train_flags)
    script, *options = table.speed_benchmark.split()
    if context.preset == "smoke":
        options += ["--sample", "1", "--repeats", "1", *(["--steps", "3"] if options else [])]
    finished = {
        (experiment.dataset, experiment.model)
        for experiment in experiments
        if not all(run.diverged for run in find_runs(experiment, context.runs))
    }
    succeeded = True
    for dataset in dict.fromkeys(experiment.dataset for experiment in experiments):
        models = dict.fromkeys(experiment.model for experiment in experiments if experiment.dataset == dataset)
        baseline, timed = next(iter(models)), [model for model in models if (dataset, model) in finished]
        if baseline not in timed:
            print_status(f"no speeds on {dataset}: they are relative to {baseline}, which has no finished run")
            continue
        arguments = [context.runs, dataset, "--models", *timed, "--json", speed_file(context, dataset), *options]
        succeeded &= run_python(root / "benchmarks" / script, *arguments)
    return succeeded


def measure_feedforward_speed(dataset: str, context: TableContext, root: Path, train_flags: Sequence[str]) -> bool:
    """Measure the training speed of all feed-forward variants; return whether this succeeded."""
    variants = sorted(name for name in read_models(configs_folder(root)) if name.startswith("ffn_"))
    datasets = configs_folder(root) / "datasets"
    data_bin = require_dataset(dataset, datasets).data_bin
    arguments = [data_bin, "--config", datasets / f"{dataset}.toml", "--models", *variants]
    arguments += ["--baseline", "ffn_relu", "--json", speed_file(context, dataset), "--flags", *train_flags]
    return run_python(root / "benchmarks" / "training.py", *arguments)


def run_python(*arguments: object) -> bool:
    """Run Python with these arguments, its output on stderr; return whether it succeeded."""
    command = [sys.executable, *map(str, arguments)]
    environment = os.environ | {"PYTHONWARNINGS": "ignore"}  # Hydra's, when a model is loaded
    return subprocess.run(command, stdout=sys.stderr, env=environment, check=False).returncode == 0
