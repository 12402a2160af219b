"""run.json, the record of a run: its settings and its results.

`RunRecord` is the file: every field is a key of the same name. Nothing else in relumt reads or writes it.
"""

from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from relumt.atomic_output import write_text_atomically
from relumt.errors import UserError
from relumt.runs.environment import Environment

RECORD = "run.json"

SCHEMA = 1
"""Increased whenever the meaning of run.json changes."""

TEST = "test"
"""The subset whose scores tables report."""


@dataclass(frozen=True)
class Initialization:
    """The weights that training starts from.

    Attributes:
        dataset: dataset on which the run that provides them was trained; "" for new weights.
        sha256: of its checkpoint; "" for new weights, or if all its checkpoints were deleted.
        diverged: whether that run diverged; then there are no weights to start from.
    """

    dataset: str = ""
    sha256: str = ""
    diverged: bool = False


@dataclass(frozen=True)
class Provenance:
    """Everything that decides the result of training; runs with equal provenance are the same run.

    Attributes:
        flags: fairseq-train's, resolved from configs/ and the command line, without paths.
        data: checksum of the sentence lengths by subset ("train", "valid").
        dictionaries: SHA-256 of each dictionary by language.
        initialization: where the weights come from.
        environment: software and hardware.
    """

    flags: dict[str, str]
    data: dict[str, str]
    dictionaries: dict[str, str]
    initialization: Initialization
    environment: Environment


@dataclass(frozen=True)
class EnvironmentChange:
    """A change of provenance that somebody accepted with ACCEPT_MIXED=1: when, and the differences in words."""

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

    parameters: int
    tokens_per_second: float
    wall_seconds: float
    updates: int
    epochs: int
    best_valid_loss: float | None


@dataclass(frozen=True)
class Divergence:
    """Why training ended early without a finite gradient: the last logged update (0 if none), fairseq's message."""

    update: int
    reason: str


@dataclass(frozen=True)
class Score:
    """A corpus score, sacreBLEU's signature of it, and its components in words (precisions, brevity penalty …)."""

    score: float
    signature: str
    detail: str


Scores = dict[str, Score]
"""Scores by metric: bleu_tokenized, bleu_detokenized, chrf and, for sentences, ter."""


@dataclass(frozen=True)
class EvaluationSetup:
    """Everything that decides the translations of a subset.

    Attributes:
        subset: "test", "valid" or "train".
        flags: fairseq-generate's, without paths.
        data: checksum of the subset.
        checkpoint: name of the checkpoint's file.
        checkpoint_sha256: its SHA-256.
        environment: software and hardware.
        one_by_one: whether the sentences of documents that lost a separator are translated one by one.
    """

    subset: str
    flags: dict[str, str]
    data: str
    checkpoint: str
    checkpoint_sha256: str
    environment: Environment
    one_by_one: bool


@dataclass(frozen=True)
class SubsetScores:
    """Scores of a subset of the test set, and its number of sentences."""

    sentences: int
    scores: Scores


@dataclass(frozen=True)
class DocumentResults:
    """Counts and scores besides the BLEU of whole documents (d-BLEU), if documents were translated.

    Attributes:
        chunks: how many chunks were translated.
        documents: how many documents they make up.
        separator_mismatches: chunks whose translation has a wrong number of separators; None without separators.
        translated_one_by_one: whether the sentences of those chunks were translated one by one.
        sentence_scores: scores with one sentence per line; None without separators.
    """

    chunks: int
    documents: int
    separator_mismatches: int | None = None
    translated_one_by_one: bool = False
    sentence_scores: Scores | None = None


@dataclass(frozen=True)
class Evaluation:
    """The scores of a subset.

    Attributes:
        setup: how it was translated.
        sentences: how many it has.
        scores: by metric.
        scored_files: names of the files of hypotheses and references, by the metric that is computed on them.
        references_sha256: tells one test set from another.
        tokens_per_second: speed of beam search; None if fairseq did not log it.
        subsets: scores of subsets of the test set, by name.
        documents: set if documents were translated.
    """

    setup: EvaluationSetup
    sentences: int
    scores: Scores
    scored_files: dict[str, tuple[str, str]]
    references_sha256: str
    tokens_per_second: float | None
    subsets: dict[str, SubsetScores] = field(default_factory=dict)
    documents: DocumentResults | None = None


@dataclass(frozen=True)
class RunRecord:
    """The record of a run.

    Attributes:
        dataset, model, seed: the run's name.
        data_bin: path of its data-bin.
        started: when training first started.
        provenance: what decides the result of training.
        extra_flags: fairseq-train's flags on the command line of the last start, beyond those of configs/.
        environment_changes: one entry for each time that a change of provenance was accepted.
        training: set when training has finished.
        divergence: set when training ended without a finite gradient instead.
        pending_evaluation: the translation that was started and is not scored yet.
        evaluations: scores by subset.
        schema: version of this format.
    """

    dataset: str
    model: str
    seed: int
    data_bin: str
    started: str
    provenance: Provenance
    extra_flags: list[str] = field(default_factory=list)
    environment_changes: list[EnvironmentChange] = field(default_factory=list)
    training: TrainingSummary | None = None
    divergence: Divergence | None = None
    pending_evaluation: EvaluationSetup | None = None
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

    def test_score(self, metric: str) -> Score:
        """A score of the test set; raises KeyError if there is none."""
        return self.test_evaluation.scores[metric]


@dataclass(frozen=True)
class _Header:
    schema: int | None = None


def find_record(folder: Path) -> RunRecord | None:
    """Read the record in a run's folder, None if there is none.

    Raises:
        UserError: run.json is not valid, or of another schema version.
    """
    path = folder / RECORD
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        schema = msgspec.json.decode(text, type=_Header).schema
        if schema != SCHEMA:
            written_by = "an older relumt (no schema)" if schema is None else f"another relumt (schema {schema})"
            raise UserError(
                f"{path} was written by {written_by}, expected schema {SCHEMA}; retrain or keep using that version"
            )
        return msgspec.json.decode(text, type=RunRecord)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: not a valid run record ({error}); delete {folder} and train again") from None


def load_record(folder: Path) -> RunRecord:
    """Read the record in a run's folder; raises UserError if there is none or it is not valid."""
    record = find_record(folder)
    if record is None:
        raise UserError(f"{folder / RECORD}: no such file; train with scripts/train.sh")
    return record


def save_record(folder: Path, record: RunRecord) -> None:
    """Write the record to the run's folder; an interrupted write leaves the previous file."""
    text = msgspec.json.format(msgspec.json.encode(record), indent=2)
    write_text_atomically(folder / RECORD, text.decode() + "\n")
