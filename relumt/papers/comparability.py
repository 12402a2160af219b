"""Which runs may be compared with each other: those that are equal in what a table holds fixed.

The backend of fp32 products, attention's kernels and versions of packages may differ, because they change rounding
only; tables name them.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import TypeVar

from relumt.errors import UserError
from relumt.runs.evaluation_record import EvaluationSetup
from relumt.runs.record import RunRecord
from relumt.runs.run_config import num_averaged

METRIC_TITLES = {"bleu_tokenized": "BLEU tok", "bleu_detokenized": "BLEU detok", "chrf": "chrF"}
"""Metric in run.json → its column's title."""

T = TypeVar("T")


SAME_SETTINGS = "train and evaluate them with the same settings, or move one to another RUNS folder"


def require_equal(values: Mapping[str, T], what: str, key: Callable[[T], object], advice: str = SAME_SETTINGS) -> None:
    """Raise UserError unless `key` returns the same for all values; the message names two that differ.

    Args:
        values: records or anything else that is compared, by the name to use in the message.
        what: what `key` returns, in words.
        key: returns what has to be equal.
        advice: what to do; it ends the message.
    """
    keys = {name: key(value) for name, value in values.items()}
    for name, found in keys.items():
        first, expected = next(iter(keys.items()))
        if found != expected:
            raise UserError(f"{first} and {name} differ in {what}: {expected} and {found}; {advice}")


Aspects = dict[str, Callable[[RunRecord], object]]
"""What has to be equal, in words -> function that returns it."""


def require_all_equal(records: Mapping[str, RunRecord], aspects: Aspects) -> None:
    """Raise UserError unless the records, by name, are equal in all aspects."""
    for what, key in aspects.items():
        require_equal(records, what, key)


def require_equal_training(
    records: Mapping[str, RunRecord], is_free: Callable[[str], bool] = "--seed".__eq__, varied: Collection[str] = ()
) -> None:
    """Raise UserError unless runs, and the weights that they start from, were trained alike.

    Args:
        records: the runs by name.
        is_free: returns whether a flag of training may differ.
        varied: further flags that may differ, but not in the training of the initial weights.
    """

    def fixed(flags: Mapping[str, str], varied: Collection[str] = ()) -> dict[str, str]:
        return {name: value for name, value in flags.items() if name not in varied and not is_free(name)}

    require_equal(records, "the flags of training", lambda record: fixed(record.provenance.flags, varied))
    require_all_equal(records, DEVICES)
    require_all_equal(records, INITIALIZATION)
    initial = {name: record for name, record in records.items() if record.provenance.initialization.flags}
    pretraining: Aspects = {
        "the flags of training of the initial weights": lambda run: fixed(run.provenance.initialization.flags),
        "the training data of the initial weights": lambda run: run.provenance.initialization.data,
    }
    require_all_equal(initial, pretraining)


def _translation_flags(setup: EvaluationSetup) -> dict[str, str]:
    """Return the flags of translation, without the value of --lenpen if it was chosen on another subset."""
    choice = setup.length_penalty
    return setup.flags | ({"--lenpen": f"chosen from {choice.candidates} on {choice.subset}"} if choice else {})


def _choice_procedure(setup: EvaluationSetup) -> str:
    """Describe how --lenpen was chosen, "" if it was not; flags tell which values were compared."""
    choice = setup.length_penalty
    return f"by {choice.signature} on the data {choice.data}" if choice else ""


def require_equal_evaluations(records: Mapping[str, RunRecord]) -> None:
    """Raise UserError unless scored runs share vocabulary, training data, test set and the way of translating it.

    The values of --lenpen may differ if each is the best of the same values on the same validation set.
    """
    require_all_equal(records, EVALUATION)


DEVICES: Aspects = {
    "the number of devices or the precision of training": lambda record: [
        record.provenance.environment.device.count,
        record.provenance.environment.device.precision,
    ]
}
"""The number of devices multiplies the batch size."""

INITIALIZATION: Aspects = {
    "the dataset of the initial weights": lambda record: record.provenance.initialization.dataset or "new weights"
}

DATA: Aspects = {
    "the training data": lambda record: record.provenance.data,
    # As a list, whose order tells the source language from the target language.
    "the dictionaries": lambda record: list(record.provenance.dictionaries.items()),
}

EVALUATION: Aspects = DATA | {
    "the test set (references)": lambda record: record.test_evaluation.references_sha256,
    "the test set (sources, references or subsets)": lambda record: record.test_evaluation.setup.data,
    "ONE_BY_ONE": lambda record: int(record.test_evaluation.setup.one_by_one),
    "the flags of translation": lambda record: _translation_flags(record.test_evaluation.setup),
    "the checkpoint that translates": lambda record: record.test_evaluation.setup.checkpoint,
    "the choice of --lenpen": lambda record: _choice_procedure(record.test_evaluation.setup),
}


def describe_decoding_choices(records: Iterable[RunRecord]) -> list[str]:
    """Return notes on averaged checkpoints and chosen length penalties, by model and in the order of the records."""
    setups = [(record.model, record.test_evaluation.setup) for record in records if record.is_scored]
    averages = {count for _, setup in setups if (count := num_averaged(setup.checkpoint))}
    notes = [f"translated with the average of the last {count} checkpoints" for count in sorted(averages)]
    chosen: dict[str, dict[str, list[str]]] = {}
    for model, setup in setups:
        if choice := setup.length_penalty:
            title = f"length penalty chosen by BLEU on {choice.subset} from {choice.candidates}"
            chosen.setdefault(title, {}).setdefault(model, []).append(choice.chosen)
    for title, values in chosen.items():
        by_model = [f"{model} {_join_seeds(found)}" for model, found in values.items()]
        notes.append(f"{title}: {'; '.join(by_model)}")
    return notes


def _join_seeds(values: list[str]) -> str:
    """Join the values of several seeds: "1.4, 1.8, 1.4", or "1.4" if all are equal."""
    return values[0] if len(set(values)) == 1 else ", ".join(values)


def require_equal_signatures(records: Mapping[str, RunRecord], metric: str) -> None:
    """Raise UserError unless the scores by `metric`, of those that have one, were computed in the same way."""
    title = METRIC_TITLES.get(metric, metric)
    scored = {name: record for name, record in records.items() if record.has_metric(metric)}
    require_equal(scored, f"the signature of {title}", lambda record: record.signature(metric))
    external = [(name, record.external_scores.get(metric)) for name, record in scored.items()]
    sources = {name: score.sources_sha256 for name, score in external if score and score.sources_sha256}
    require_equal(sources, f"the sources that {title} read", lambda checksum: checksum)


def require_run_folder(folder: Path, record: RunRecord) -> None:
    """Raise UserError unless the folder has the run's name: a copy would count as another seed, model or dataset."""
    if folder.absolute().parts[-3:] != tuple(record.name.split("/")):
        raise UserError(f"{folder}: expected the folder of a run, found that of {record.name}; rename or move it")


def describe_revisions(records: Iterable[RunRecord]) -> str:
    """Return the revisions of relumt that trained the runs, and those that translated with them if others did."""
    records = list(records)
    trained = dict.fromkeys(record.provenance.environment.relumt for record in records)
    translated = dict.fromkeys(
        evaluation.setup.environment.relumt for record in records for evaluation in record.evaluations.values()
    )
    text = f"trained with {', '.join(trained)}"
    return text if translated.keys() <= trained.keys() else f"{text}; translated with {', '.join(translated)}"
