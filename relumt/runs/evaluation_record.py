"""The part of run.json about translation: how a subset was translated, and its scores."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from msgspec import Meta

from relumt.runs.environment import Environment
from relumt.runs.flags import Count, Facts, Name, NonNegative, Subset

SCORING_VERSIONS = ("sacrebleu", "sacremoses")
"""Packages whose version affects the scores of translations."""


@dataclass(frozen=True)
class Score:
    """A corpus score, sacreBLEU's signature of it, and its components in words (precisions, brevity penalty …)."""

    score: NonNegative
    signature: str
    detail: str


@dataclass(frozen=True)
class ExternalScore:
    """A score that another program computed.

    Attributes:
        score: the subset's score.
        command: the program and its arguments.
        version: what the program says about itself and its model, "" if nothing.
        segments: name of the file in the run's folder that has the score of each segment, one per line.
        segments_sha256: SHA-256 of that file.
        sources_sha256: SHA-256 of the sources that the program read.
    """

    score: float
    command: str
    version: str
    segments: Name
    segments_sha256: str
    sources_sha256: str

    @property
    def signature(self) -> str:
        """What identifies the metric: its version or, if that is unknown, its command."""
        return self.version or self.command


Scores = dict[str, Score]
"""Scores by metric: bleu_tokenized, bleu_detokenized, chrf and, for sentences, ter."""


def best_penalty(bleu: Mapping[str, float]) -> str:
    """Return the value of --lenpen with the highest BLEU; of equal ones the closest to 1, then the smallest.

    Args:
        bleu: BLEU by value.
    """

    def rank(value: str) -> tuple[float, float, float]:
        distance = round(abs(float(value) - 1), 9)  # in binary, 0.6 and 1.4 are not equally far from 1
        return -bleu[value], distance, float(value)

    return min(bleu, key=rank)


@dataclass(frozen=True)
class LengthPenaltyChoice:
    """Which values of --lenpen were compared, and which one is the best.

    Attributes:
        subset: what was translated with each of them, "valid".
        data: checksum of the subset.
        signature: sacreBLEU's signature of the tokenized BLEU that they were compared by.
        bleu: BLEU by value, as --lenpen takes it.
        chosen: the best value.
    """

    subset: Subset
    data: str
    signature: str
    bleu: Annotated[dict[str, NonNegative], Meta(min_length=1)]
    chosen: str

    @property
    def values(self) -> list[float]:
        """The values that were compared, in ascending order."""
        return sorted(map(float, self.bleu))

    @property
    def candidates(self) -> str:
        """The values that were compared, in ascending order and in words: "0.6, 1.0 and 1.4"."""
        *others, last = sorted(self.bleu, key=float)
        return f"{', '.join(others)} and {last}" if others else last


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
        length_penalty: how --lenpen was chosen; None if the dataset or the user gave it, or left it to fairseq.
    """

    subset: Subset
    flags: dict[str, str]
    data: str
    checkpoint: Name
    checkpoint_sha256: str
    environment: Environment
    length_penalty: LengthPenaltyChoice | None = None

    def facts(self) -> Facts:
        """Return what the translations and their scores depend on."""
        choice = self.length_penalty
        return {
            **self.flags,
            "data": self.data,
            "checkpoint": self.checkpoint,
            "checkpoint sha256": self.checkpoint_sha256,
            "choice of --lenpen": choice,
            "values of --lenpen": choice.values if choice else [],
            **self.environment.facts(),
            **{f"version {name}": self.environment.versions.get(name) for name in SCORING_VERSIONS},
        }


@dataclass(frozen=True)
class LengthPenaltySearch:
    """A translation whose hypotheses served to choose --lenpen: how it was made, and the result."""

    setup: EvaluationSetup
    choice: LengthPenaltyChoice


@dataclass(frozen=True)
class SubsetScores:
    """Scores of a subset of the test set, and its number of sentences."""

    sentences: Count
    scores: Scores


@dataclass(frozen=True)
class DocumentResults:
    """Counts and scores besides the BLEU of whole documents (d-BLEU), if documents were translated.

    Attributes:
        chunks: how many chunks were translated.
        documents: how many documents they make up.
        separator_mismatches: chunks whose translation has a wrong number of separators; None without separators.
        sentence_scores: scores with one sentence per line; None without separators.
    """

    chunks: Count
    documents: Count
    separator_mismatches: Count | None = None
    sentence_scores: Scores | None = None


@dataclass(frozen=True)
class Evaluation:
    """The scores of a subset.

    Attributes:
        setup: how it was translated.
        sentences: number of its sentences.
        scores: by metric.
        scored_files: names of the files of hypotheses and references, by the metric that is computed on them.
        files_sha256: SHA-256 of each of these files by its name; empty in records of earlier versions.
        references_sha256: tells one test set from another.
        tokens_per_second: speed of beam search; None if fairseq did not log it.
        subsets: scores of subsets of the test set, by name.
        documents: set if documents were translated.
        external: scores of other programs, by the name that the user gave to the metric.
    """

    setup: EvaluationSetup
    sentences: Count
    scores: Scores
    scored_files: dict[str, tuple[Name, Name]]
    references_sha256: str
    tokens_per_second: NonNegative | None
    subsets: dict[str, SubsetScores] = field(default_factory=dict)
    documents: DocumentResults | None = None
    external: dict[str, ExternalScore] = field(default_factory=dict)
    files_sha256: dict[Name, str] = field(default_factory=dict)
