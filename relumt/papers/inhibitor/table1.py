"""[IN] Table 1: one-layer Transformers, dot-product attention against the Inhibitor, on four tasks.

`table1_models.py` has the equations and shapes, `table1_data.py` the data, `table1_settings.py` the presets.

Trains what is missing in --out (`table1_training.py`). Preset smoke trains on generated data: its scores mean nothing.
The exit status is 2 if the request is invalid, and 1 if a training failed.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import mean, median

from relumt.arguments import positive_integer
from relumt.errors import UserError
from relumt.papers.context import TableContext
from relumt.papers.inhibitor.generated_data import WRITERS
from relumt.papers.inhibitor.results import make_parser, read_result
from relumt.papers.inhibitor.table1_settings import MECHANISMS, PRESETS, TASKS
from relumt.papers.inhibitor.table1_training import Experiment, Training
from relumt.papers.rendering import RenderedTable, format_p_value
from relumt.papers.seed_statistics import confidence_interval
from relumt.printed_results import format_printed, title
from relumt.process import command_line

DATA_FILES = {
    "mnist": "MNIST's four idx files",
    "imdb": "the folder aclImdb, or train.tsv.gz and test.tsv.gz",
    "iam": "words.txt and the folder words",
}
"""Task -> what the folder of its data contains."""


def main(argv: Sequence[str] | None = None) -> None:
    """Read the data of all tasks before training the first."""
    parser = make_parser("table1", __doc__, PRESETS)
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=TASKS, help="which to train (default: all)")
    parser.add_argument("--repetitions", type=positive_integer, help="seeds per task (default: those of the preset)")
    for task, content in DATA_FILES.items():
        text, default = f"{content} (default: data/{task})", Path("data", task)
        parser.add_argument(f"--{task}", type=Path, default=default, metavar="FOLDER", help=text)
    with command_line():
        arguments = parser.parse_args(argv)
        loaded = []
        for task in (task for task in TASKS if task in arguments.tasks):
            plan, data = PRESETS[arguments.preset][task], getattr(arguments, task, Path())
            plan = replace(plan, repetitions=arguments.repetitions or plan.repetitions)
            if arguments.preset == "smoke" and task in WRITERS:
                data = arguments.out / "generated" / task
                WRITERS[task](data)
            experiment = Experiment(task, plan, arguments.out / task)
            loaded.append((experiment, experiment.load(data)))
        for experiment, splits in loaded:
            if splits:
                experiment.run(splits)


SCORES = (
    ("adding problem, mse %", "adding", "mse", ".3f"),
    ("MNIST, accuracy %", "mnist", "accuracy", ".2f"),
    ("IMDB, accuracy %", "imdb", "accuracy", ".2f"),
    ("IAM words, edit distance", "iam", "edit distance", ".2f"),
    ("IAM words, edit distance, padded", "iam", "edit distance, padded", ".2f"),
)
"""Row of the table, task, metric, and how its values are printed; the last row is in no paper."""
PRINTED = {"adding problem, mse %": "adding, mse %", "IAM words, edit distance, padded": ""}
"""Row of the table -> column in papers.json, where they differ."""
COLUMNS = ("dot product, paper", "Inhibitor, paper", "dot product", "Inhibitor", "difference", "p", "repetitions")
NOTES = (
    "test set, mean over repetitions ± half of its 95% interval (Student's t); difference: Inhibitor − dot product, "
    "paired by seed, with its 95% interval; p: two-sided paired t-test",
    "lower is better for mse and edit distance, higher for accuracy; the epoch and the learning rate are chosen on "
    "validation data",
    "the paper prints neither sizes nor recipes; docs/results/inhibitor_table1.md lists what we decided",
)


def render(context: TableContext, folder: Path) -> list[RenderedTable]:
    """Return the table of the finished repetitions; raise UserError if there are none."""
    found = {pair: read_repetitions(folder.joinpath(*pair)) for pair in product(TASKS, MECHANISMS)}
    finished = [training for seeds in found.values() for training in seeds.values()]
    if not finished:
        raise UserError(f"no finished training in {folder}; train with {context.command}")
    rows, medians = [], []
    for label, task, metric, spec in SCORES:
        scores = {
            mechanism: {seed: (training.test or {})[metric] for seed, training in found[task, mechanism].items()}
            for mechanism in MECHANISMS
        }
        rows.append([label, *printed_scores(PRINTED.get(label, label)), *compare(scores, spec)])
        medians += [f"{label} {median(own.values()):{spec}} ({name})" for name, own in scores.items() if own]
    rates = [
        f"{task} {', '.join(f'{rate:g}' for rate in chosen)} ({mechanism})"
        for (task, mechanism), seeds in found.items()
        if (chosen := sorted({training.learning_rate for training in seeds.values()}))
    ]
    missing = [
        f"{task} ({done} of {plan.repetitions})"
        for task, plan in PRESETS[context.preset].items()
        if (done := min(len(found[task, mechanism]) for mechanism in MECHANISMS)) < plan.repetitions
    ]
    folders = "" if context.preset == "smoke" else " -- --mnist FOLDER --imdb FOLDER --iam FOLDER"
    revisions = sorted({training.revision for training in finished})
    versions = sorted({training.versions["torch"] for training in finished})
    notes = [*NOTES, f"medians: {'; '.join(medians)}", f"learning rates: {'; '.join(rates)}"]
    if missing:
        notes.append(f"not finished: {', '.join(missing)}; {context.command}{folders} trains what is missing")
    notes.append(f"{', '.join(revisions)}; torch {', '.join(versions)}")
    if context.preset == "smoke":
        notes.append("preset smoke trains on generated data for seconds, so its scores mean nothing")
    return [RenderedTable(context.caption(title("IN", "table1")), ["task", *COLUMNS], rows, notes)]


def read_repetitions(folder: Path) -> dict[int, Training]:
    """Return the finished repetitions of a mechanism, by seed."""
    found = [read_result(path, Training) for path in sorted(folder.glob("seed-*.json"))]
    return {training.seed: training for training in found if training and training.test}


def printed_scores(column: str) -> list[str]:
    """Return what the paper prints for both mechanisms."""
    return [format_printed("IN", "table1", row, column) if column else "" for row in ("dot product", "inhibitor")]


def compare(scores: Mapping[str, Mapping[int, float]], spec: str) -> list[str]:
    """Return both means, their difference with its p-value, and the number of pairs; mechanism -> seed -> score."""
    baseline, inhibitor = (scores[mechanism] for mechanism in MECHANISMS)
    differences = [inhibitor[seed] - baseline[seed] for seed in sorted(baseline.keys() & inhibitor.keys())]
    means = [format_mean(list(own.values()), spec) for own in (baseline, inhibitor)]
    return [*means, *format_difference(differences, spec), str(len(differences))]


def format_mean(values: Sequence[float], spec: str) -> str:
    """Return the mean and half of its interval, as in "97.91 ± 0.12"; no interval for one value, "" for none."""
    if not values:
        return ""
    interval = confidence_interval(values)
    return f"{mean(values):{spec}}" + (f" ± {(interval[1] - interval[0]) / 2:{spec}}" if interval else "")


def format_difference(differences: Sequence[float], spec: str) -> tuple[str, str]:
    """Return the mean difference with its interval, and the p-value; empty for less than two."""
    interval = confidence_interval(differences) if len(differences) > 1 else None
    if interval is None:
        return "", ""
    low, high = interval
    bounds = f"({low:+{spec}} to {high:+{spec}})"
    return f"{mean(differences):+{spec}} {bounds}", format_p_value(paired_p_value(differences))


def paired_p_value(differences: Sequence[float]) -> float:
    """Return the two-sided p-value of a paired t-test, 1 if there is no difference at all, 0 if all are equal.

    The sign-flip test of the other tables needs six pairs for p < 0.05, and three of these tasks have five.
    """
    from scipy.stats import ttest_1samp

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of differences that are almost equal
        return float(ttest_1samp(differences, 0.0).pvalue) if any(differences) else 1.0


if __name__ == "__main__":
    main()
