"""The part of run.json about translation: how a subset was translated, and its scores."""

from dataclasses import dataclass, field, replace

from relumt.runs.environment import Environment
from relumt.runs.field_types import Count, Name, NonNegative, Subset
from relumt.runs.length_penalty_choice import LengthPenaltyChoice

REQUIRED_SCORES = frozenset({"bleu_tokenized", "bleu_detokenized", "chrf"})
"""Metrics by which every subset is scored."""


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
        sources_sha256: SHA-256 of the sources that the program read; "" in records of earlier versions.
    """

    score: float
    command: str
    version: str
    segments: Name
    segments_sha256: str
    sources_sha256: str = ""

    @property
    def signature(self) -> str:
        """What identifies the metric: its version or, if that is unknown, its command."""
        return self.version or self.command


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
        length_penalty: how --lenpen was chosen; None if the dataset or the user gave it, or left it to fairseq.
    """

    subset: Subset
    flags: dict[str, str]
    data: str
    checkpoint: Name
    checkpoint_sha256: str
    environment: Environment
    one_by_one: bool
    length_penalty: LengthPenaltyChoice | None = None

    def matches(self, other: "EvaluationSetup") -> bool:
        """Return whether both are equal in everything but the environment."""
        return replace(self, environment=other.environment) == other


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

    def __post_init__(self) -> None:
        _require_scores(self.scores)


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

    chunks: Count
    documents: Count
    separator_mismatches: Count | None = None
    translated_one_by_one: bool = False
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

    def __post_init__(self) -> None:
        _require_scores(self.scores)


def _require_scores(scores: Scores) -> None:
    """Raise ValueError, which msgspec reports as part of an invalid file, unless every metric is there."""
    if missing := sorted(REQUIRED_SCORES - scores.keys()):
        raise ValueError(f"there are no scores by {', '.join(missing)}")
