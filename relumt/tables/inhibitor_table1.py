"""[IN] Table 1: one-layer Transformers, dot-product attention against the Inhibitor, on four tasks.

`relumt.one_layer` trains the models; here their test scores become a table.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median

from relumt.errors import UserError
from relumt.one_layer.record import Training, read_repetitions
from relumt.one_layer.settings import MECHANISMS, PRESETS
from relumt.papers import format_printed
from relumt.tables.context import TableContext
from relumt.tables.measured import MeasuredTable
from relumt.tables.rendering import RenderedTable, format_p_value
from relumt.tables.seed_statistics import confidence_interval


@dataclass(frozen=True)
class Score:
    """A row of the table.

    Attributes:
        label: name of the row.
        task: a task of relumt.one_layer.
        metric: the metric of that task.
        column: in papers.json, "" if the paper prints nothing.
        format_spec: how its values are printed.
    """

    label: str
    task: str
    metric: str
    column: str
    format_spec: str


SCORES = (
    Score("adding problem, mse %", "adding", "mse", "adding, mse %", ".3f"),
    Score("MNIST, accuracy %", "mnist", "accuracy", "MNIST, accuracy %", ".2f"),
    Score("IMDB, accuracy %", "imdb", "accuracy", "IMDB, accuracy %", ".2f"),
    Score("IAM words, edit distance", "iam", "edit distance", "IAM words, edit distance", ".2f"),
    Score("IAM words, edit distance, padded", "iam", "edit distance, padded", "", ".2f"),
)

PAPER_ROWS = {"softmax": "dot product", "inhibitor": "inhibitor"}
"""Mechanism -> row in papers.json."""

HEADER = (
    "task",
    "dot product, paper",
    "Inhibitor, paper",
    "dot product",
    "Inhibitor",
    "difference",
    "p",
    "repetitions",
)

NOTES = (
    "test set, mean over repetitions ± half of its 95% interval (Student's t); difference: Inhibitor − dot product, "
    "paired by seed, with its 95% interval; p: two-sided paired t-test",
    "lower is better for mse and edit distance, higher for accuracy; the epoch and the learning rate are chosen on "
    "validation data",
    "the paper prints neither sizes nor recipes; docs/results/inhibitor_table1.md lists what we decided",
)

Repetitions = dict[str, dict[int, Training]]
"""Mechanism -> seed -> training."""


class InhibitorTable1(MeasuredTable):
    """See the module."""

    def render(self, context: TableContext) -> list[RenderedTable]:
        """See Table."""
        folder = self.results_folder(context)
        found = {task: read_task(folder, task) for task in PRESETS[context.preset]}
        finished = [training for task in found.values() for seeds in task.values() for training in seeds.values()]
        if not finished:
            raise UserError(f"no finished training in {folder}; train with {context.command}")
        rows = [make_row(score, found[score.task]) for score in SCORES]
        notes = [
            *NOTES,
            describe_medians(found),
            *describe_rates(found),
            *describe_missing(found, context),
            describe_environment(finished),
        ]
        if context.preset == "smoke":
            notes.append("preset smoke trains on generated data for seconds, so its scores mean nothing")
        return [RenderedTable(context.caption(self.title), HEADER, rows, notes)]


def read_task(folder: Path, task: str) -> Repetitions:
    """Return the finished repetitions of a task."""
    return {mechanism: read_repetitions(folder, task, mechanism) for mechanism in MECHANISMS}


def make_row(score: Score, found: Repetitions) -> list[str]:
    """Return the cells of a row; those of a task that is not trained are empty."""
    printed = [format_printed("IN", "table1", row, score.column) if score.column else "" for row in PAPER_ROWS.values()]
    values = {
        mechanism: {seed: training.test[score.metric] for seed, training in seeds.items() if training.test}
        for mechanism, seeds in found.items()
    }
    baseline, inhibitor = (values[mechanism] for mechanism in MECHANISMS)
    common = sorted(baseline.keys() & inhibitor.keys())
    return [
        score.label,
        *printed,
        *(format_mean(list(values[mechanism].values()), score.format_spec) for mechanism in MECHANISMS),
        *format_difference([inhibitor[seed] - baseline[seed] for seed in common], score.format_spec),
        str(len(common)),
    ]


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
    return (
        f"{mean(differences):+{spec}} ({low:+{spec}} to {high:+{spec}})",
        format_p_value(paired_p_value(differences)),
    )


def paired_p_value(differences: Sequence[float]) -> float:
    """Return the two-sided p-value of a paired t-test, 1 if there is no difference at all, 0 if all are equal.

    The sign-flip test of the other tables needs six pairs for p < 0.05, and three of these tasks have five.
    """
    from scipy.stats import ttest_1samp

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of differences that are almost equal
        return float(ttest_1samp(differences, 0.0).pvalue) if any(differences) else 1.0


def describe_medians(found: dict[str, Repetitions]) -> str:
    """Return a note about the medians: a training that fails does not move them, but moves the means."""
    medians = [
        f"{score.label} {median(values):{score.format_spec}} ({mechanism})"
        for score in SCORES
        for mechanism, seeds in found[score.task].items()
        if (values := [training.test[score.metric] for training in seeds.values() if training.test])
    ]
    return f"medians: {'; '.join(medians)}"


def describe_rates(found: dict[str, Repetitions]) -> list[str]:
    """Return a note about the chosen learning rates."""
    rates = [
        f"{task} {', '.join(f'{rate:g}' for rate in chosen)} ({mechanism})"
        for task, mechanisms in found.items()
        for mechanism, seeds in mechanisms.items()
        if (chosen := sorted({training.learning_rate for training in seeds.values()}))
    ]
    return [f"learning rates: {'; '.join(rates)}"]


def describe_missing(found: dict[str, Repetitions], context: TableContext) -> list[str]:
    """Return notes about the repetitions that are missing from a preset, and the command that trains them."""
    missing = []
    for task, plan in PRESETS[context.preset].items():
        done = min(len(seeds) for seeds in found[task].values())
        if done < plan.repetitions:
            missing.append(f"{task} ({done} of {plan.repetitions})")
    folders = "" if context.preset == "smoke" else " -- --mnist FOLDER --imdb FOLDER --iam FOLDER"
    return [f"not finished: {', '.join(missing)}; {context.command}{folders} trains what is missing"] if missing else []


def describe_environment(trainings: Sequence[Training]) -> str:
    """Return the revisions of relumt and the versions of PyTorch that trained."""
    revisions = sorted({training.revision for training in trainings})
    versions = sorted({training.versions.get("torch", "unknown") for training in trainings})
    return f"{', '.join(revisions)}; torch {', '.join(versions)}"


TABLES = (InhibitorTable1("IN", "table1", module="relumt.one_layer"),)
