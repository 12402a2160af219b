"""analysis.json: what `relumt analyze` measured, for one or several checkpoints.

The dataclasses below are the format of the file; `read_analysis` and `write_analysis` are the only code that reads or
writes it. docs/analysis.md defines the measures. A value is None where a measure does not apply, for example the
entropy of weights that can be negative.
"""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import mean
from typing import Annotated

from msgspec import Meta

from relumt.corpora.alignment import Unit
from relumt.errors import AttemptFailedError
from relumt.files import encode_json, read_versioned, write_text_atomically
from relumt.runs.flags import Count

ANALYSIS = "analysis.json"
SCHEMA = 6
"""Increase this whenever a field of analysis.json changes its name or meaning."""

PerHead = list[float | None]
"""One value per head; None if no query of the head has a value, for example because all its rows are null."""

Percentage = Annotated[str, Meta(pattern=r"\A[0-9]{1,2}(\.[0-9]{1,3})?\Z")]
Site = Annotated[str, Meta(pattern=r"\A(encoder|decoder|cross)\Z")]


def mean_over_heads(values: PerHead | None) -> float | None:
    """Return the mean over the heads that have a value; None if there are none."""
    known = [value for value in values or () if value is not None]
    return mean(known) if known else None


@dataclass(frozen=True)
class AttentionMetrics:
    """Measures of one attention module, averaged over the queries of the test set.

    Attributes:
        site: "encoder", "decoder" or "cross".
        mechanism: class name of the attention mechanism.
        num_queries: queries that are not padding.
        sparsity: share of visible keys with a weight of exactly 0. None for a mechanism without weights.
        null_rate: share of queries without weight on any key (null rows).
        null_rate_variance: sample variance of `null_rate` over heads; None with a single head.
        null_rate_shuffled: null rate when each target is paired with another source.
        entropy: entropy of the normalized weights in nats; a null row counts as 0.
        entropy_non_null, sparsity_non_null: the same, over queries that are not null rows.
        top_share: percentage p -> share of the weight on the top p % of the visible keys, interpolated between whole
            numbers of keys.
        sink_rate: share of the weight on the first visible key, over queries that can attend to more than one.
        sink_rate_uniform: what `sink_rate` would be with uniform weights on the same rows, mean over heads; None if it
            has no value. Null rows are left out, as for `sink_rate`.
        distance: mean distance between a query and the keys it attends to (self-attention).
        distant_share: share of the weight on keys more than 10 tokens, or words, away (self-attention).
        stop_word_share: share of the weight on stop words. None if the language has no list of stop words.
        stop_word_rate: share of stop words among the visible keys, which is `stop_word_share` of uniform weights on the
            same rows, mean over heads. Null rows are left out, as for `stop_word_share`.
        head_diversity: Jensen-Shannon divergence between the heads' distributions: "normalized" for α/Σα, and for
            weights α that do not sum to 1 also the temperature τ of a softmax of α^τ, "1.0" to "0.1". Empty if it does
            not apply.
    """

    site: Site
    mechanism: str
    num_queries: Count = 0
    sparsity: PerHead | None = None
    null_rate: PerHead | None = None
    null_rate_variance: float | None = None
    null_rate_shuffled: PerHead | None = None
    entropy: PerHead | None = None
    entropy_non_null: PerHead | None = None
    sparsity_non_null: PerHead | None = None
    top_share: dict[Percentage, PerHead] | None = None
    sink_rate: PerHead | None = None
    sink_rate_uniform: float | None = None
    distance: PerHead | None = None
    distant_share: PerHead | None = None
    stop_word_share: PerHead | None = None
    stop_word_rate: float | None = None
    head_diversity: dict[str, float] = field(default_factory=dict)

    @property
    def has_weights(self) -> bool:
        """Whether the mechanism has attention weights to measure."""
        return self.sparsity is not None

    @property
    def normalized_diversity(self) -> float | None:
        """Head diversity of the weights α/Σα."""
        return self.head_diversity.get("normalized")

    @property
    def rela_diversity(self) -> float | None:
        """Head diversity as [RL] Fig. 5 has it: of the softmax at temperature 1 if the weights do not sum to 1."""
        return self.head_diversity.get("1.0", self.head_diversity.get("normalized"))


@dataclass(frozen=True)
class AlignmentErrors:
    """Alignment error rates (AER) in percent of one cross-attention module.

    Attributes:
        heads: AER of each head.
        mean_weights: AER of the weights averaged over heads; for norm-weighted attention, AER of ‖Σ_h c_hij‖.
    """

    heads: Annotated[list[float], Meta(min_length=1)]
    mean_weights: float

    @property
    def best_head(self) -> float:
        """AER of the best head."""
        return min(self.heads)


@dataclass(frozen=True)
class LayerAlignment:
    """Alignment errors of one cross-attention module for two choices of the query that aligns a target word.

    Attributes:
        normal: the query that predicts the word.
        shifted: the next query, which has read the word.
    """

    normal: AlignmentErrors
    shifted: AlignmentErrors


@dataclass(frozen=True)
class AlignmentMetrics:
    """Alignment errors against gold word alignments ([RL] Table 5).

    Attributes:
        num_skipped_pairs: pairs left out because the dictionary lacks one of their subwords.
        layers: errors of attention weights by cross-attention module.
        norm_layers: errors of norm-weighted attention, without modules that it is not defined for.
    """

    num_skipped_pairs: Count
    layers: Annotated[dict[str, LayerAlignment], Meta(min_length=1)]
    norm_layers: dict[str, LayerAlignment]

    def errors(self, query: str, kind: str = "layers") -> list[AlignmentErrors]:
        """Return the errors by layer for a choice of query, "normal" or "shifted", of `layers` or `norm_layers`."""
        return [getattr(layer, query) for layer in getattr(self, kind).values()]

    def aol(self, query: str) -> float:
        """Return AoL of [RL] Table 5: the error of the averaged weights, mean over layers."""
        return mean(errors.mean_weights for errors in self.errors(query))

    def aoh(self, query: str) -> float:
        """Return AoH of [RL] Table 5: the error of the best head, mean over layers."""
        return mean(errors.best_head for errors in self.errors(query))


@dataclass(frozen=True)
class FeedForwardMetrics:
    """Measures of one feed-forward layer, averaged over the positions of the test set ([RF] section 3).

    Attributes:
        num_slots: hidden size of the layer.
        num_positions: positions that are not padding.
        variance_ratio: variance of the layer's output over that of the residual ([RF] Table 1).
        null_rate: share of positions at which every slot scores 0; None if scores can be negative.
        top_share: percentage p -> share of the score on the top p % of slots, over the positions that are not null
            ([RF] Fig. 2); None if scores can be negative.
        anisotropy: mean cosine of two value slots ([RF] Eq. 4); None for a single slot.
    """

    num_slots: Count
    num_positions: Count
    variance_ratio: float
    null_rate: float | None
    top_share: dict[Percentage, float] | None
    anisotropy: float | None


@dataclass(frozen=True)
class CheckpointAnalysis:
    """All measures of one checkpoint.

    Attributes:
        name: label in tables and plots, for example "softmax/1".
        path: path of the checkpoint.
        data: data-bin with the test set.
        sha256: checksum of the checkpoint.
        versions: versions of the packages that computed the measures, and the revision of relumt.
        unit: whether the measures of attention are about subwords or about words. Those of alignments are always
            about words, those of feed-forward layers about subwords.
        num_pairs: sentence pairs read.
        num_pairs_too_long: sentence pairs left out because they exceed the model's maximum positions.
        attention: measures by attention module, for example "decoder.layers.0.encoder_attn".
        alignment: None without gold alignments or without cross-attention weights.
        feedforward: measures by layer, for example "encoder.layers.0".
        activations: learned parameters of the activation functions, by layer and name.
        data_sha256: `EvaluationSetup.data` of this data, "" if no run can have it.
        num_parameters: number of parameters of the model; shared ones count once.
        alignments_sha256: SHA-256 of the file of gold alignments, even if they did not fit, as in a model of documents;
            "" without one. None if it was a pipe.
    """

    name: str
    path: str
    data: str
    sha256: str
    versions: dict[str, str]
    unit: Unit
    num_pairs: Count
    num_pairs_too_long: Count
    attention: dict[str, AttentionMetrics]
    alignment: AlignmentMetrics | None
    feedforward: dict[str, FeedForwardMetrics]
    activations: dict[str, dict[str, float]]
    data_sha256: str
    num_parameters: Count
    alignments_sha256: str | None = None

    def attentions(self, site: str = "") -> list[AttentionMetrics]:
        """Return the measures of the attention modules of a site, or of all, from the first layer to the last."""
        return [metrics for metrics in self.attention.values() if site in ("", metrics.site)]

    def feedforwards(self, stack: str) -> list[FeedForwardMetrics]:
        """Return the measures of the feed-forward layers of the "encoder" or "decoder", from the first to the last."""
        return [metrics for name, metrics in self.feedforward.items() if name.startswith(stack)]


@dataclass(frozen=True)
class AnalysisFile:
    """The content of analysis.json: one analysis per checkpoint, all on the same subset."""

    subset: str
    checkpoints: Annotated[list[CheckpointAnalysis], Meta(min_length=1)]
    schema: int = SCHEMA


def read_analysis(path: Path) -> AnalysisFile:
    """Read an analysis.json.

    Raises:
        UserError: it is not JSON, is written by another version of relumt, or a field is missing or not valid.
    """
    return read_versioned(path, AnalysisFile, SCHEMA, "delete it and run relumt analyze again")


def write_analysis(analysis: AnalysisFile, path: Path) -> None:
    """Write an analysis.json, completely or not at all.

    Raises:
        AttemptFailedError: a measure is infinite or NaN.
    """
    for checkpoint in analysis.checkpoints:
        try:
            json.dumps(asdict(checkpoint), allow_nan=False)
        except ValueError:
            problem = "a measure is infinite or NaN, as after training that diverged; analyze another checkpoint"
            raise AttemptFailedError(f"{checkpoint.path}: {problem}") from None
    write_text_atomically(path, encode_json(analysis))
