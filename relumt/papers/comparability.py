"""Which runs may be compared with each other: those that are equal in what a table holds fixed.

The backend of fp32 products, attention's kernels and versions of packages may differ, because they change rounding
only; tables name them.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any

from relumt.errors import UserError
from relumt.runs.evaluation_record import Evaluation
from relumt.runs.record import RunRecord

METRIC_TITLES = {"bleu_tokenized": "BLEU tok", "bleu_detokenized": "BLEU detok", "chrf": "chrF"}
"""Metric in run.json → its column's title."""

SAME_SETTINGS = "train and evaluate them with the same settings, or move one to another RUNS folder"

Aspects = Mapping[str, Callable[[Any], object]]
"""What has to be equal, in words -> function that returns it, or None for what has no such thing."""


def require_equal(values: Mapping[str, object], aspects: Aspects, advice: str = SAME_SETTINGS) -> None:
    """Raise UserError unless values are equal in all aspects that they have; the message names two that differ.

    Args:
        values: records or anything else that is compared, by the name to use in the message.
        aspects: what has to be equal.
        advice: what to do; it ends the message.
    """
    for what, find in aspects.items():
        known = [(name, found) for name, value in values.items() if (found := find(value)) is not None]
        for name, found in known:
            first, expected = known[0]
            if found != expected:
                raise UserError(f"{first} and {name} differ in {what}: {expected} and {found}; {advice}")


DATA: Aspects = {
    "the training data": lambda run: run.provenance.data,
    # As a list, whose order tells the source language from the target language.
    "the dictionaries": lambda run: list(run.provenance.dictionaries.items()),
}

INITIALIZATION: Aspects = {
    "the dataset of the initial weights": lambda run: run.provenance.initialization.dataset or "new weights"
}


def training(is_free: Callable[[str], bool] = "--seed".__eq__, varied: Collection[str] = ()) -> Aspects:
    """Return how runs, and the weights that they start from, were trained.

    Args:
        is_free: returns whether a flag of training may differ.
        varied: further flags that may differ, but not in the training of the initial weights.
    """

    def fixed(flags: Mapping[str, str], varied: Collection[str] = ()) -> dict[str, str]:
        return {name: value for name, value in flags.items() if name not in varied and not is_free(name)}

    def initial_flags(run: RunRecord) -> dict[str, str] | None:
        flags = run.provenance.initialization.flags
        return fixed(flags) if flags else None

    return {
        "the flags of training": lambda run: fixed(run.provenance.flags, varied),
        # The number of devices multiplies the batch size.
        "the number of devices or the precision of training": lambda run: [
            run.provenance.environment.device.count,
            run.provenance.environment.device.precision,
        ],
        **INITIALIZATION,
        "the flags of training of the initial weights": initial_flags,
        "the training data of the initial weights": lambda run: run.provenance.initialization.data or None,
    }


def _test_aspect(find: Callable[[Evaluation], object]) -> Callable[[RunRecord], object]:
    return lambda run: find(run.test_evaluation) if run.is_scored else None


def _translation_flags(evaluation: Evaluation) -> dict[str, str]:
    """Return the flags of translation; instead of a chosen --lenpen, how it was chosen on another subset."""
    flags, choice = evaluation.setup.flags, evaluation.setup.length_penalty
    if choice is None:
        return flags
    described = f"chosen from {choice.candidates} by {choice.signature} on {choice.subset} (data {choice.data})"
    return flags | {"--lenpen": described}


EVALUATION: Aspects = {
    "the test set (references)": _test_aspect(lambda test: test.references_sha256),
    "the test set (sources, references or subsets)": _test_aspect(lambda test: test.setup.data),
    "the flags of translation": _test_aspect(_translation_flags),
    "the checkpoint that translates": _test_aspect(lambda test: test.setup.checkpoint),
}
"""The values of --lenpen may differ if each is the best of the same values on the same validation set."""


def signatures(metrics: Collection[str]) -> Aspects:
    """Return how the test set was scored by each of the metrics."""
    aspects: dict[str, Callable[[RunRecord], object]] = {}
    for metric in metrics:

        def signature(run: RunRecord, metric: str = metric) -> str | None:
            return run.signature(metric) if run.has_metric(metric) else None

        def sources(run: RunRecord, metric: str = metric) -> str | None:
            score = run.external_score(metric)
            return score.sources_sha256 if score else None

        title = METRIC_TITLES.get(metric, metric)
        aspects |= {f"the signature of {title}": signature, f"the sources that {title} read": sources}
    return aspects


ANALYSES: Aspects = {
    "the unit of attention": lambda analysis: analysis.unit,
    "the gold alignments": lambda analysis: (analysis.alignment and analysis.alignments_sha256) or None,
}
"""Gold alignments of unknown checksum, which came through a pipe, are not compared."""
