"""What of runs may be compared, and how their scores are put together."""

from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from relumt.errors import UserError
from relumt.runs.record import Record

SUBSET = "test"
SCORES = {"bleu_tokenised": "BLEU tok", "bleu_detokenised": "BLEU detok", "chrf": "chrF"}
"""Name of a score in run.json → head of its column."""


DEVICES = (
    "the number of devices or the precision of training",
    lambda record: [record["fingerprint"]["device"][of] for of in ("count", "precision")],
)
"""The batch is as many times as large as there are devices."""

STARTS = ("what training started from", lambda record: started_from(record) or "new weights")
"""More training may be behind one."""


def require_equal(records: Mapping[str, Record], what: str, of: Callable[[Record], Any]) -> None:
    """Raise UserError, naming two of the runs, unless `of` gives the same for all; records: by what to call them."""
    if not records:
        return
    (first, expected), *others = ((name, of(record)) for name, record in records.items())
    for other, found in others:
        if found != expected:
            raise UserError(
                f"{first} and {other} differ in {what}: {expected} and {found}; "
                "evaluate or train them alike, or move one to another RUNS"
            )


def require_seed_folder(folder: Path, record: Record) -> None:
    """Raise UserError where a run's folder is not named by its seed: a copy, which would count as one more seed."""
    if folder.name != str(record["seed"]):
        raise UserError(f"{folder}: of seed {record['seed']}, which it is not named by; put it where it belongs")


def started_from(record: Record) -> str:
    """The dataset on which the model was trained first, "" where there is none."""
    return record["fingerprint"].get("start", {}).get("dataset", "")


def evaluated(record: Record) -> dict[str, Any]:
    """The evaluation on the test set."""
    return record["evaluation"][SUBSET]


def score(record: Record, name: str) -> float:
    """A score of the test set."""
    return evaluated(record)["scores"][name]["score"]


def signature(record: Record, name: str) -> str:
    """sacreBLEU's signature of a score of the test set."""
    return evaluated(record)["scores"][name]["signature"]


def name_of(record: Record) -> str:
    """DATASET/MODEL/SEED."""
    return f"{record['dataset']}/{record['model']}/{record['seed']}"


def average(values: list[float], form: str) -> str:
    """The mean, and the standard deviation where there are several values."""
    spread = f" ± {stdev(values):{form}}" if len(values) > 1 else ""
    return f"{mean(values):{form}}{spread}"
