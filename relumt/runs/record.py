"""run.json, the record of a run: its settings and its results.

`RunRecord` is the file: every field is a key of the same name, and its type says which values are valid. Nothing else
in relumt reads or writes it.
"""

import os
from dataclasses import dataclass, field
from pathlib import Path

from relumt.errors import UserError
from relumt.files import encode_json, read_versioned, write_text_atomically
from relumt.runs.environment import Environment
from relumt.runs.evaluation_record import Evaluation, ExternalScore, LengthPenaltySearch, Score
from relumt.runs.flags import Count, Facts, Name, NonNegative

RUN_RECORD = "run.json"

RECOVERY_ADVICE = (
    "restore it from a copy, or set RUNS to another folder to train again; the checkpoints need not be deleted"
)
"""How to get a valid run.json without losing the checkpoints."""

PREPARATION = "preparation"
"""Name of the folder in a run's folder with the dictionaries, the subwords and the prepare.json of its data-bin."""

CHECKPOINTS = "checkpoints"
"""Name of the folder of checkpoints in a run's folder."""

SCHEMA = 2
"""Increased whenever the meaning of run.json changes."""

TEST = "test"
"""The subset whose scores tables report."""


@dataclass(frozen=True)
class Initialization:
    """The weights that training starts from.

    Attributes:
        dataset: dataset on which the run that provides them was trained; "" for new weights.
        sha256: SHA-256 of its checkpoint; "" for new weights, or if all its checkpoints were deleted.
        flags: fairseq-train's of that run, without the seed; empty for new weights.
        data: SHA-256 of each subset that it read; empty like `flags`.
    """

    dataset: str = ""
    sha256: str = ""
    flags: dict[str, str] = field(default_factory=dict)
    data: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Provenance:
    """Everything that decides the result of training; runs with equal provenance are the same run.

    Attributes:
        flags: fairseq-train's, resolved from configs/ and the command line, without paths.
        data: SHA-256 of each subset that training reads ("train", "valid").
        dictionaries: SHA-256 of each dictionary by language.
        initialization: where the weights come from.
        environment: software and hardware.
    """

    flags: dict[str, str]
    data: dict[str, str]
    dictionaries: dict[str, str]
    initialization: Initialization
    environment: Environment

    def facts(self) -> Facts:
        """Return what the result of training depends on.

        How the initial weights were trained does not count, because their checksum does, unless it is unknown.
        """
        weights = {"initialization sha256": self.initialization.sha256} if self.initialization.sha256 else {}
        return {
            **self.flags,
            **{f"data {subset}": checksum for subset, checksum in self.data.items()},
            **{f"vocabulary {language}": checksum for language, checksum in self.dictionaries.items()},
            "initialization dataset": self.initialization.dataset,
            **weights,
            **self.environment.facts(),
        }


@dataclass(frozen=True)
class AcceptedChange:
    """A change of provenance that somebody accepted with FORCE=1: when, and the differences in words."""

    when: str
    differences: list[str]


@dataclass(frozen=True)
class TrainingSummary:
    """What the log of a finished training says.

    Attributes:
        parameters: number of parameters of the model; shared ones count once.
        tokens_per_second: target tokens per second, the median over the log's intervals, so pauses do not count.
        wall_seconds: from loading the first batch to the last validation, over all resumptions.
        updates, epochs: done at the end.
        best_valid_loss: the lowest; None without validation.
    """

    parameters: Count
    tokens_per_second: NonNegative
    wall_seconds: NonNegative
    updates: Count
    epochs: Count
    best_valid_loss: float | None


@dataclass(frozen=True)
class Divergence:
    """Why training ended early without a finite gradient: the last logged update (0 if none), fairseq's message."""

    update: Count
    reason: str


@dataclass(frozen=True)
class RunRecord:
    """The record of a run.

    Attributes:
        dataset, model, seed: the run's name.
        data_bin: path of its data-bin, absolute or relative to the run's folder.
        started: when training first started.
        provenance: what decides the result of training.
        extra_flags: fairseq-train's flags on the command line of the last start, beyond those of configs/.
        accepted_changes: one entry for each time that a change of provenance was accepted.
        training: set when training has finished.
        divergence: set when training ended without a finite gradient instead.
        length_penalty_search: the last choice of --lenpen.
        evaluations: scores by subset.
        schema: version of this format.
    """

    dataset: Name
    model: Name
    seed: Count
    data_bin: str
    started: str
    provenance: Provenance
    extra_flags: list[str] = field(default_factory=list)
    accepted_changes: list[AcceptedChange] = field(default_factory=list)
    training: TrainingSummary | None = None
    divergence: Divergence | None = None
    length_penalty_search: LengthPenaltySearch | None = None
    evaluations: dict[str, Evaluation] = field(default_factory=dict)
    schema: int = SCHEMA

    @property
    def name(self) -> str:
        """DATASET/MODEL/SEED."""
        return f"{self.dataset}/{self.model}/{self.seed}"

    @property
    def has_ended(self) -> bool:
        """Whether training finished or diverged."""
        return self.training is not None or self.divergence is not None

    @property
    def is_scored(self) -> bool:
        """Whether the test set is scored."""
        return TEST in self.evaluations

    @property
    def test_evaluation(self) -> Evaluation:
        """The evaluation on the test set; raises KeyError if there is none."""
        return self.evaluations[TEST]

    @property
    def ordered_evaluations(self) -> list[Evaluation]:
        """All evaluations, that on the test set first."""
        return sorted(self.evaluations.values(), key=lambda evaluation: evaluation.setup.subset != TEST)

    def test_score(self, metric: str) -> Score:
        """A score of the test set; raises KeyError if there is none."""
        return self.test_evaluation.scores[metric]

    @property
    def external_scores(self) -> dict[str, ExternalScore]:
        """The scores of the test set by other programs, by metric; empty if it is not scored."""
        return self.test_evaluation.external if self.is_scored else {}

    def external_score(self, metric: str) -> ExternalScore | None:
        """The score of the test set by another program; `metric` is its name, or "NAME (SIGNATURE)" for one version."""
        named = self.external_scores.items()
        return next((score for name, score in named if metric in (name, f"{name} ({score.signature})")), None)

    def has_metric(self, metric: str) -> bool:
        """Whether the test set is scored by a metric, sacreBLEU's or another program's."""
        return self.external_score(metric) is not None or (self.is_scored and metric in self.test_evaluation.scores)

    def signature(self, metric: str) -> str:
        """What identifies how the test set was scored by a metric; raises KeyError without a score."""
        external = self.external_score(metric)
        return external.signature if external else self.test_score(metric).signature


def find_record(folder: Path) -> RunRecord | None:
    """Read the record in a run's folder, None if there is none.

    Raises:
        UserError: run.json is not valid, or of another schema version.
    """
    try:
        return read_versioned(folder / RUN_RECORD, RunRecord, SCHEMA, RECOVERY_ADVICE)
    except FileNotFoundError:
        return None


def load_record(folder: Path) -> RunRecord:
    """Read the record in a run's folder; raises UserError if there is none or it is not valid."""
    record = find_record(folder)
    if record is None:
        raise UserError(f"{folder / RUN_RECORD}: no such file; train with relumt run --train")
    return record


def find_run(checkpoint: Path) -> Path | None:
    """Return the folder of the run that a checkpoint belongs to, None if it belongs to none."""
    folder = checkpoint.absolute().parent  # not resolved: a link in a run's folder has to be a checkpoint of that run
    return folder.parent if folder.name == CHECKPOINTS and (folder.parent / RUN_RECORD).is_file() else None


def find_record_of_checkpoint(path: Path) -> RunRecord | None:
    """Return the record of the run that a checkpoint belongs to, None if it belongs to none."""
    run = find_run(path)
    return find_record(run) if run else None


def find_data_bin(run: Path, record: RunRecord) -> Path:
    """Return the data-bin that a run was trained on, which may not be there any more.

    In earlier records, a relative path begins at the folder in which the scripts ran, mostly a parent.
    """
    folder, data_bin = run.resolve(), Path(record.data_bin)
    candidates = [base / data_bin for base in (folder, *folder.parents, Path.cwd())]
    found = next(filter(Path.is_dir, candidates), candidates[0])
    return data_bin if data_bin.is_absolute() else Path(os.path.relpath(found))


def data_bin_of_checkpoint(checkpoint: Path) -> Path:
    """Return the data-bin that a checkpoint was trained on; raise UserError if it belongs to no run."""
    run = find_run(checkpoint)
    if run is None:
        raise UserError(f"{checkpoint}: no run.json that names the data-bin; give one with --data")
    return find_data_bin(run, load_record(run))


def find_preparation(checkpoint: Path) -> Path:
    """Return the folder that says how text becomes a checkpoint's input: the run's own, or else its data-bin.

    Raises:
        UserError: the checkpoint belongs to no run.
    """
    run = find_run(checkpoint)
    return run / PREPARATION if run and (run / PREPARATION).is_dir() else data_bin_of_checkpoint(checkpoint)


def save_record(folder: Path, record: RunRecord) -> None:
    """Write the record to the run's folder; an interrupted write leaves the previous one."""
    write_text_atomically(folder / RUN_RECORD, encode_json(record))
