"""Measure a checkpoint on a test set: load it, force-decode the references, and put the collected measures together."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from relumt.analysis.attention_maps import AlignmentScorer, MapCollector, SentenceMaps, map_own_translations
from relumt.analysis.collectors import AttentionCollector, FeedForwardCollector, learned_activations
from relumt.analysis.record import AttentionMetrics, CheckpointAnalysis
from relumt.analysis.units import BatchReader
from relumt.corpora.alignment import GoldAlignment, Unit, read_alignments, read_source_first
from relumt.corpora.parallel import progress_step
from relumt.corpora.record import gold_alignments_path
from relumt.errors import UserError, print_status, printable
from relumt.files import file_sha256
from relumt.plugin.model.hooks import named_attentions
from relumt.runs.data_bin import find_subwords, open_data_bin
from relumt.runs.environment import describe_revision, versions
from relumt.runs.inference.loaded_model import LoadedModel, load_model, with_texts
from relumt.runs.inference.translator import default_search


@dataclass(frozen=True)
class AnalysisConfig:
    """The data that checkpoints are measured on, and how.

    Attributes:
        data: data-bin; None for the one that a run was trained on.
        subset: name of the subset.
        alignments: file with gold word alignments; None for the data-bin's own, if it has any.
        first_word: number of the first word in `alignments`, 0 or 1.
        num_maps: number of sentence pairs whose attention maps are kept.
        max_tokens: tokens in a batch.
        cpu: do not use a GPU.
        unit: whether to measure the attention of subwords or of words.
        maps_own_translations: whether to keep the maps of the model's own translations, too.
    """

    data: Path | None
    subset: str
    alignments: Path | None = None
    first_word: int = 0
    num_maps: int = 0
    max_tokens: int = 4096
    cpu: bool = False
    unit: Unit = "subwords"
    maps_own_translations: bool = False


def measure_checkpoint(
    checkpoint_or_run: Path, name: str, config: AnalysisConfig
) -> tuple[CheckpointAnalysis, list[SentenceMaps]]:
    """Measure a checkpoint, or a run's scored checkpoint; return its analysis, labeled `name`, and attention maps.

    Raises:
        UserError: the checkpoint or the test set is missing or unusable, or the number of gold alignments is wrong.
    """
    loaded, data = load_model(checkpoint_or_run, with_texts(checkpoint_or_run, config.data), config.cpu)
    require_attentions(loaded)
    model, task, path, subset = loaded.model, loaded.task, loaded.path, config.subset
    num_pairs, data_sha256 = loaded.load_subset(subset), find_subset_checksum(data, subset)
    gold, gold_path = load_gold_alignments(loaded, data, num_pairs, config)
    # None for a pipe, which can be read only once
    alignments_sha256 = file_sha256(gold_path) if gold_path.is_file() else None if gold_path.exists() else ""
    subwords = find_subwords(data, task.cfg.target_lang)
    reader = BatchReader(task, subwords, config.unit)
    alignment = None if gold is None else AlignmentScorer(gold, subwords)
    feedforward = FeedForwardCollector(model, task.target_dictionary.pad())
    attention, shuffled = AttentionCollector(model, reader), AttentionCollector(model, reader, null_rates_only=True)
    maps = MapCollector(model, task, config.num_maps, subwords, use_cross_maps=alignment.add if alignment else None)

    def read(
        subset: str, what: str, collectors: Sequence[AttentionCollector | FeedForwardCollector | MapCollector]
    ) -> int:
        """Force-decode a subset while the collectors observe the model; return the number of sentence pairs."""
        pairs = 0
        with progress_step(f"{name}: {what}", len(loaded.fitting_indices(subset))) as advance:
            for sample in loaded.batches(subset, config.max_tokens):
                with ExitStack() as stack:
                    for collector in collectors:
                        stack.enter_context(collector.observe(sample))
                    loaded.force_decode(sample)
                pairs += sample["nsentences"]
                advance(sample["nsentences"])
        return pairs

    num_read = read(subset, "attention and feed-forward layers", [feedforward, attention, maps])
    if not num_read:
        raise UserError(f"{data}: every pair of '{subset}' exceeds the maximum positions of {path}")
    if num_read > 1:
        read(loaded.shuffle_targets(subset), "null rates, targets shuffled", [shuffled])
    null_rates = {module: measured.null_rate for module, measured in shuffled.result().items()}
    metrics = {
        module: replace(measured, null_rate_shuffled=null_rates[module])
        for module, measured in attention.result().items()
    }
    report_missing_measures(path, metrics, reader)
    if alignment is not None:
        report_alignment_problems(alignment, path, gold_path)
    analysis = CheckpointAnalysis(
        name=printable(name),
        path=printable(str(path)),
        data=printable(str(data)),
        sha256=file_sha256(path),
        versions=versions() | {"revision": describe_revision()},
        unit=config.unit,
        num_pairs=num_read,
        num_pairs_too_long=num_pairs - num_read,
        attention=metrics,
        alignment=alignment.result() if alignment else None,
        feedforward=feedforward.result(),
        activations=learned_activations(model),
        data_sha256=data_sha256,
        alignments_sha256=alignments_sha256,
        num_parameters=loaded.num_parameters,
    )
    kept = maps.result()
    if config.maps_own_translations:
        with progress_step(f"{name}: attention on own translations"):
            kept += map_own_translations(loaded, subset, config.num_maps, default_search(loaded))
    return analysis, kept


def require_attentions(loaded: LoadedModel) -> None:
    """Raise UserError unless the model has relumt's attention modules."""
    if not named_attentions(loaded.model):
        raise UserError(
            f"{loaded.path}: expected one of relumt's architectures; to analyze a stock Transformer, load its weights "
            "into mechanism_transformer with the same flags (--finetune-from-model)"
        )


def require_weights(loaded: LoadedModel) -> None:
    """Raise UserError if no attention module of the model has weights to show."""
    attentions = named_attentions(loaded.model).values()
    if not any(attention.mechanism.has_weights for attention in attentions):
        names = ", ".join(sorted({type(attention.mechanism).__name__ for attention in attentions}))
        raise UserError(f"{loaded.path}: {names} has no attention weights to show; choose a model that has")


def load_gold_alignments(
    loaded: LoadedModel, data: Path, num_pairs: int, config: AnalysisConfig
) -> tuple[list[GoldAlignment] | None, Path]:
    """Return the gold alignments of the subset, source word first, and their file; None if there are none.

    A file P.TGT-SRC.align has the target word first and is swapped. The data-bin's own alignments are for its own
    translation direction and are swapped for a model of the other one. They are ignored if their number differs, which
    is the case for models that read documents.

    Raises:
        UserError: the file is invalid, or the number of alignments in `config.alignments` is not `num_pairs`.
    """
    languages = loaded.task.cfg.source_lang, loaded.task.cfg.target_lang
    if config.alignments is not None:
        return read_source_first(config.alignments, languages, num_pairs, config.first_word), config.alignments
    path = gold_alignments_path(data, config.subset)
    gold = read_alignments(path, 0) if path.is_file() else []
    if gold and languages[0] == open_data_bin(data).target:
        gold = [alignment.swap_sides() for alignment in gold]
    return (gold if len(gold) == num_pairs else None), path


def find_subset_checksum(data: Path, subset: str) -> str:
    """Return the checksum that an evaluation of this subset records (`EvaluationSetup.data`).

    "" if the data-bin has no training set, so that no run can use it.
    """
    try:
        data_bin = open_data_bin(data)
    except UserError:
        return ""
    return data_bin.evaluation_checksum(subset)


def report_missing_measures(path: Path, attention: dict[str, AttentionMetrics], reader: BatchReader) -> None:
    """Print which attention modules or languages lack measures, and why."""
    no_weights = "this mechanism has no attention weights; measures of attention, maps and alignments are left out"
    negative = "weights can be negative; null rate, entropy, distance, shares and head diversity are left out"
    for reason, lacks_measures in (
        (no_weights, lambda metrics: not metrics.has_weights),
        (negative, lambda metrics: metrics.has_weights and metrics.entropy is None),
    ):
        if names := [name for name, metrics in attention.items() if lacks_measures(metrics)]:
            print_status(f"{path}: {', '.join(names)}: {reason}")
    if languages := reader.languages_without_stop_words:
        missing = " or ".join(languages)
        print_status(f"{path}: NLTK has no stop words for {missing}; shares of weight on them are left out")


def report_alignment_problems(alignment: AlignmentScorer, path: Path, gold_path: Path) -> None:
    """Print how many gold links and sentence pairs the alignment error rates leave out."""
    if alignment.num_links_out_of_range:
        number = alignment.num_links_out_of_range
        print_status(f"{gold_path}: links to words that the sentence does not have: {number}; left out")
    if alignment.skipped_pairs:
        number = len(alignment.skipped_pairs)
        print_status(f"{path}: {number} sentence pairs contain unknown subwords; left out of the alignment error rates")
