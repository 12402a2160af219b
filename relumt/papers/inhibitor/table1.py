"""[IN] Table 1: one-layer Transformers, dot-product attention against the Inhibitor, on four tasks.

`table1_models.py` has the equations and shapes, `table1_data.py` the data and the presets.

Trains what is missing in --out. Each mechanism takes the learning rate with the best validation score, and each
training its epoch with the best one. Preset smoke trains on generated data: its scores mean nothing. The exit status is
2 if the request is invalid.

    OUT/TASK/MECHANISM/rate-RATE.json   a training that only serves to choose the learning rate
    OUT/TASK/MECHANISM/seed-SEED.json   a repetition
"""

import copy
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from itertools import product
from pathlib import Path
from statistics import mean, median

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from relumt.errors import UserError, print_status
from relumt.papers.context import TableContext
from relumt.papers.inhibitor.generated_data import WRITERS
from relumt.papers.inhibitor.results import make_parser, read_result, write_result
from relumt.papers.inhibitor.table1_data import PRESETS, Settings, Splits, load
from relumt.papers.inhibitor.table1_models import TASKS
from relumt.papers.rendering import RenderedTable, format_p_value
from relumt.papers.seed_statistics import confidence_interval
from relumt.printed_results import format_printed, title
from relumt.process import command_line, positive_integer
from relumt.runs.environment import describe_revision

MECHANISMS = ("softmax", "inhibitor")
"""The two rows of [IN] Table 1; softmax is its "dot product"."""
SEARCH_SEED = 0
"""Seed of the trainings that choose a learning rate; repetitions have seeds from 1."""
WARMUP_SHARE = 0.05
"""Share of the updates in which the learning rate rises from 0 to its peak; then it falls linearly to 0."""
MAX_GRADIENT_NORM = 1.0
SCORING_BATCH = 250

DATA_FILES = {
    "mnist": "MNIST's four idx files",
    "imdb": "the folder aclImdb, or train.tsv.gz and test.tsv.gz",
    "iam": "words.txt and the folder words",
}
"""Task -> what the folder of its data contains."""


@dataclass(frozen=True)
class Training:
    """A finished training.

    Attributes:
        learning_rate, seed: what was trained.
        validation: scores of the validation set after each epoch, metric -> value.
        best_epoch: the epoch with the best validation score, whose weights were kept; counted from 1.
        test: scores of the test set, metric -> value; None if the training only served to choose a learning rate.
        revision: commit of relumt, and its hash of uncommitted changes, "" for none.
        versions: package -> version.
    """

    learning_rate: float
    seed: int
    validation: list[dict[str, float]]
    best_epoch: int
    test: dict[str, float] | None
    revision: str
    versions: dict[str, str]


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
        unfinished = []
        for task, settings in PRESETS[arguments.preset].items():
            settings = replace(settings, repetitions=arguments.repetitions or settings.repetitions)
            if task in arguments.tasks and missing_trainings(settings, arguments.out / task):
                data = getattr(arguments, task, Path())
                if arguments.preset == "smoke" and task in WRITERS:
                    data = arguments.out / "generated" / task
                    WRITERS[task](data)
                unfinished.append((task, settings, load(task, settings, data)))
        for task, settings, splits in unfinished:
            train_missing(task, settings, splits, arguments.out / task)


def missing_trainings(settings: Settings, folder: Path) -> list[tuple[str, float | None, int, Path]]:
    """Return mechanism, learning rate, seed and file of what is not trained yet; repetitions take the best rate."""
    wanted = [(rate, SEARCH_SEED, f"rate-{rate:g}.json") for rate in settings.learning_rates]
    wanted += [(None, seed, f"seed-{seed}.json") for seed in range(1, settings.repetitions + 1)]  # type: ignore[misc]
    jobs = [(mechanism, *one[:2], folder / mechanism / one[2]) for one in wanted for mechanism in MECHANISMS]
    return [job for job in jobs if read_result(job[-1], Training) is None]


def train_missing(task: str, settings: Settings, splits: Splits, folder: Path) -> None:
    """Make the trainings that are missing, and score the test set of repetitions."""
    jobs = missing_trainings(settings, folder)
    for number, (mechanism, given_rate, seed, path) in enumerate(jobs, 1):
        rate = given_rate or best_rate(task, settings, folder / mechanism)
        model, validation, best_epoch = train(task, splits, settings, mechanism, rate, seed)
        test = score(task, model, splits.test) if given_rate is None else None
        versions = {name: version(name) for name in ("torch", "numpy", "relumt")}
        write_result(path, Training(rate, seed, validation, best_epoch, test, describe_revision(), versions))
        scores = ", ".join(f"{name} {value:.4g}" for name, value in (test or validation[best_epoch - 1]).items())
        kind = "validation" if test is None else "test"
        print_status(
            f"{task}, {number} of {len(jobs)}: {mechanism}, seed {seed}, learning rate {rate:g}: {kind} {scores}"
        )


def best_rate(task: str, settings: Settings, folder: Path) -> float:
    """Return the learning rate with the best validation score."""
    found = [read_result(folder / f"rate-{rate:g}.json", Training) for rate in settings.learning_rates]
    tried = [training for training in found if training]
    return max(tried, key=lambda one: quality(task, one.validation[one.best_epoch - 1])).learning_rate


def quality(task: str, scores: Mapping[str, float]) -> float:
    """Return the value of the metric that decides, such that higher is better."""
    return TASKS[task].sign * next(iter(scores.values()))


def train(
    task: str, splits: Splits, settings: Settings, mechanism: str, rate: float, seed: int
) -> tuple[nn.Module, list[dict[str, float]], int]:
    """Train with Adam; the seed determines the initial weights, dropout and the order of examples.

    Returns:
        The model with the weights of the best epoch, the validation scores after each epoch, and the best epoch from 1.
    """
    torch.manual_seed(seed)
    model = TASKS[task].model(settings, mechanism, splits.num_symbols)
    order = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(model.parameters(), rate)
    num_updates = settings.epochs * math.ceil(len(splits.train) / settings.batch_size)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda update: rate_factor(update, num_updates))
    validation: list[dict[str, float]] = []
    best_epoch, best_weights = 0, model.state_dict()
    for epoch in range(1, settings.epochs + 1):
        model.train()
        for inputs, targets in batches(splits.train, settings.batch_size, order):
            optimizer.zero_grad()
            TASKS[task].loss(model(inputs), targets).backward()
            nn.utils.clip_grad_norm_(model.parameters(), MAX_GRADIENT_NORM)
            optimizer.step()
            scheduler.step()
        validation.append(score(task, model, splits.valid))
        if epoch == 1 or quality(task, validation[-1]) > quality(task, validation[best_epoch - 1]):
            best_epoch, best_weights = epoch, copy.deepcopy(model.state_dict())
    model.load_state_dict(best_weights)
    return model, validation, best_epoch


def rate_factor(update: int, num_updates: int) -> float:
    """Return the factor of the peak learning rate at an update, counted from 0."""
    warmup = max(1, round(WARMUP_SHARE * num_updates))
    return min((update + 1) / warmup, (num_updates - update) / max(1, num_updates - warmup))


def batches(
    examples: TensorDataset, size: int, generator: torch.Generator | None = None
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield inputs and targets of at most `size` examples; in random order if there is a generator."""
    order = torch.arange(len(examples)) if generator is None else torch.randperm(len(examples), generator=generator)
    for chosen in order.split(size):
        yield examples[chosen]


@torch.no_grad()
def score(task: str, model: nn.Module, examples: TensorDataset) -> dict[str, float]:
    """Return the scores of a model, metric -> value."""
    model.eval()
    outputs = torch.cat([model(inputs) for inputs, _ in batches(examples, SCORING_BATCH)])
    return TASKS[task].score(outputs, examples.tensors[1])


SCORES = (
    ("adding problem, mse %", "adding", "mse", ".3f", "adding, mse %"),
    ("MNIST, accuracy %", "mnist", "accuracy", ".2f", "MNIST, accuracy %"),
    ("IMDB, accuracy %", "imdb", "accuracy", ".2f", "IMDB, accuracy %"),
    ("IAM words, edit distance", "iam", "edit distance", ".2f", "IAM words, edit distance"),
    ("IAM words, edit distance, padded", "iam", "edit distance, padded", ".2f", ""),
)
"""Row of the table, task, metric, how its values are printed, and column in papers.json, "" if no paper prints it."""
COLUMNS = ("dot product, paper", "Inhibitor, paper", "dot product", "Inhibitor", "difference", "p", "repetitions")
NOTES = (
    "test set, mean over repetitions ± half of its 95% interval (Student's t); difference: Inhibitor − dot product, "
    "paired by seed, with its 95% interval; p: two-sided paired t-test",
    "lower is better for mse and edit distance, higher for accuracy; the epoch and the learning rate are chosen on "
    "validation data",
    "the paper prints neither sizes nor recipes; docs/results/inhibitor_tables.md lists what we decided",
)


def render(context: TableContext, folder: Path) -> list[RenderedTable]:
    """Return the table of the finished repetitions; raise UserError if there are none."""
    found = {pair: read_repetitions(folder.joinpath(*pair)) for pair in product(TASKS, MECHANISMS)}
    finished = [training for seeds in found.values() for training in seeds.values()]
    if not finished:
        raise UserError(f"no finished training in {folder}; train with {context.command}")
    rows, medians = [], []
    for label, task, metric, spec, column in SCORES:
        printed = [
            format_printed("IN", "table1", row, column) if column else "" for row in ("dot product", "inhibitor")
        ]
        scores = [
            {seed: (training.test or {})[metric] for seed, training in found[task, mechanism].items()}
            for mechanism in MECHANISMS
        ]
        rows.append([label, *printed, *compare(scores[0], scores[1], spec)])
        pairs = zip(MECHANISMS, scores, strict=True)
        medians += [f"{label} {median(own.values()):{spec}} ({name})" for name, own in pairs if own]
    rates = [
        f"{task} {', '.join(f'{rate:g}' for rate in chosen)} ({mechanism})"
        for (task, mechanism), seeds in found.items()
        if (chosen := sorted({training.learning_rate for training in seeds.values()}))
    ]
    missing = [
        f"{task} ({done} of {settings.repetitions})"
        for task, settings in PRESETS[context.preset].items()
        if (done := min(len(found[task, mechanism]) for mechanism in MECHANISMS)) < settings.repetitions
    ]
    notes = [*NOTES, f"medians: {'; '.join(medians)}", f"learning rates: {'; '.join(rates)}"]
    if missing:
        folders = "" if context.preset == "smoke" else " -- --mnist FOLDER --imdb FOLDER --iam FOLDER"
        notes.append(f"not finished: {', '.join(missing)}; {context.command}{folders} trains what is missing")
    revisions = sorted({training.revision for training in finished})
    versions = sorted({training.versions["torch"] for training in finished})
    notes.append(f"{', '.join(revisions)}; torch {', '.join(versions)}")
    if context.preset == "smoke":
        notes.append("preset smoke trains on generated data for seconds, so its scores mean nothing")
    return [RenderedTable(context.caption(title("IN", "table1")), ["task", *COLUMNS], rows, notes)]


def read_repetitions(folder: Path) -> dict[int, Training]:
    """Return the finished repetitions of a mechanism, by seed."""
    found = [read_result(path, Training) for path in sorted(folder.glob("seed-*.json"))]
    return {training.seed: training for training in found if training and training.test}


def compare(baseline: Mapping[int, float], inhibitor: Mapping[int, float], spec: str) -> list[str]:
    """Return both means, the difference with its p-value, and the number of pairs; seed -> score.

    A mean has half of its interval beside it, as in "97.91 ± 0.12"; one value has none, and p needs two pairs. The
    sign-flip test of the other tables needs six pairs for p < 0.05, and three of these tasks have five.
    """
    differences = [inhibitor[seed] - baseline[seed] for seed in sorted(baseline.keys() & inhibitor.keys())]
    cells = []
    for values in (list(baseline.values()), list(inhibitor.values())):
        interval = confidence_interval(values) if values else None
        half = f" ± {(interval[1] - interval[0]) / 2:{spec}}" if interval else ""
        cells.append(f"{mean(values):{spec}}{half}" if values else "")
    interval = confidence_interval(differences) if differences else None
    if interval:
        bounds = f"({interval[0]:+{spec}} to {interval[1]:+{spec}})"
        cells += [f"{mean(differences):+{spec}} {bounds}", format_p_value(paired_p_value(differences))]
    else:
        cells += ["", ""]
    return [*cells, str(len(differences))]


def paired_p_value(differences: Sequence[float]) -> float:
    """Return the two-sided p-value of a paired t-test, 1 if there is no difference at all, 0 if all are equal."""
    from scipy.stats import ttest_1samp

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of differences that are almost equal
        return float(ttest_1samp(differences, 0.0).pvalue) if any(differences) else 1.0


if __name__ == "__main__":
    main()
