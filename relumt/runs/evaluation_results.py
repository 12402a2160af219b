"""Score what fairseq-generate wrote, and write the translations beside their references."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from relumt.corpora.document_lengths import read_document_lengths
from relumt.errors import UserError, quote
from relumt.files import atomic_file
from relumt.plugin.tasks.chunks import sentences_per_chunk
from relumt.plugin.tasks.document_chunks import find_mismatches
from relumt.runs.document_translations import (
    align_documents,
    count_mismatches,
    load_chunks,
    replace_lost_separators,
)
from relumt.runs.evaluation_record import DocumentResults, Evaluation, EvaluationSetup, Score, SubsetScores
from relumt.runs.record import RUN_RECORD
from relumt.runs.run_config import RunConfig
from relumt.runs.score import score_documents, score_translations, tokenized_bleu
from relumt.runs.scored_files import hash_files, scored_file_names
from relumt.runs.translations import GeneratedOutput, Translations, align_translations, read_generated, read_speed
from relumt.text_files import write_lines

SINGLE_SENTENCES = "sentences"
"""Subfolder of a run's folder with a document-level model's translations of single sentences."""


@dataclass(frozen=True)
class ScoredOutput:
    """Scores of a translation, and the files that belong to them.

    Attributes:
        evaluation: what run.json records.
        files: translations and references, by the name of the file that they are to be written to.
    """

    evaluation: Evaluation
    files: dict[str, Sequence[str]]

    def write_files(self, folder: Path) -> None:
        """Write translations and references to the run's folder; hard links to earlier ones keep their content."""
        for name, lines in self.files.items():
            with atomic_file(folder / name) as unfinished:
                write_lines(unfinished, lines)


def generate_log(folder: Path, setup: EvaluationSetup) -> Path:
    """Return the path of fairseq-generate's messages in the folder of a run or of one of its translations."""
    return folder / f"generate-{setup.subset}.log"


def generate_output(folder: Path, setup: EvaluationSetup) -> Path:
    """Return the path of the translations that fairseq-generate writes with `folder` as --results-path."""
    return folder / f"generate-{setup.subset}.txt"


def score_output(config: RunConfig, setup: EvaluationSetup) -> ScoredOutput:
    """Score the output of fairseq-generate, without writing anything.

    Raises:
        UserError: fairseq-generate did not translate every sentence.
    """
    subset, data_bin = setup.subset, config.data_bin
    output = generate_output(config.folder, setup)
    generated = read_generated(output)
    speed = read_speed(generate_log(config.folder, setup), output)
    if document_length(setup):
        return _score_documents(config, setup, generated, speed)
    translations = align_translations(generated, data_bin, subset)
    files = scored_lines(subset, translations)
    evaluation = Evaluation(
        setup=setup,
        sentences=len(translations.hypotheses),
        scores=score_translations(translations, data_bin.lowercased, data_bin.target),
        scored_files=scored_file_names(subset),
        files_sha256=hash_files(files),
        references_sha256=translations.references_sha256(),
        tokens_per_second=speed,
        subsets=_score_subsets(config, subset, translations),
    )
    return ScoredOutput(evaluation, files)


def bleu_of_output(config: RunConfig, setup: EvaluationSetup, generated: GeneratedOutput) -> Score:
    """Return the tokenized BLEU of sentences, or of whole documents, without writing anything.

    Raises:
        UserError: fairseq-generate did not translate every sentence.
    """
    if document_length(setup):
        separator = setup.flags.get("--document-separator", "")
        chunks, documents = _chunks_and_documents(config, setup)
        lines = load_chunks(generated, setup.subset, chunks, separator)
        aligned = align_documents(lines, generated, config.data_bin, setup.subset, chunks, documents, separator)
        translations = aligned.documents
    else:
        translations = align_translations(generated, config.data_bin, setup.subset)
    return tokenized_bleu(translations, config.data_bin.lowercased)


def document_length(setup: EvaluationSetup) -> int:
    """Return the limit of tokens in a chunk, 0 if sentences were translated; raises UserError if it is no number."""
    length = setup.flags.get("--document-length", "0")
    if not re.fullmatch(r"[0-9]{1,9}", length):
        raise UserError(
            f"{RUN_RECORD}: --document-length is {quote(length)}, expected a number of tokens; translate again"
        )
    return int(length)


def _score_subsets(config: RunConfig, subset: str, translations: Translations) -> dict[str, SubsetScores]:
    """Score the subsets of a test set."""
    data_bin = config.data_bin
    scores = {}
    for name, left_out in data_bin.subsets(subset, len(translations.hypotheses)).items():
        part = translations.without(set(left_out))
        part_scores = score_translations(part, data_bin.lowercased, data_bin.target)
        scores[name] = SubsetScores(len(part.hypotheses), part_scores)
    return scores


def count_separator_mismatches(config: RunConfig, setup: EvaluationSetup) -> int:
    """Return how many translated chunks have a different number of separators than their source."""
    chunks, _ = _chunks_and_documents(config, setup)
    generated = read_generated(generate_output(config.folder, setup))
    return count_mismatches(generated, setup.subset, chunks, setup.flags["--document-separator"])


def _chunks_and_documents(config: RunConfig, setup: EvaluationSetup) -> tuple[list[int], list[int]]:
    """Return the number of sentences in each translated chunk and in each document.

    Raises:
        UserError: the two do not add up to the same number.
    """
    source, target = (f"{config.data_bin.prefix(setup.subset)}.{language}" for language in config.data_bin.languages)
    has_separator = bool(setup.flags.get("--document-separator"))
    chunks = sentences_per_chunk(source, target, document_length(setup), has_separator)
    return chunks, read_document_lengths(config.data_bin.folder / f"{setup.subset}.docs", sum(chunks))


def _score_documents(
    config: RunConfig, setup: EvaluationSetup, generated: GeneratedOutput, speed: float | None
) -> ScoredOutput:
    """Score whole documents and, if chunks have separators, sentences; the files have chunks and their lengths, too."""
    subset, data_bin = setup.subset, config.data_bin
    separator = setup.flags.get("--document-separator", "")
    chunks, documents = _chunks_and_documents(config, setup)
    lines = load_chunks(generated, subset, chunks, separator)
    mismatches = find_mismatches(lines, chunks, separator) if separator else []
    is_one_by_one = setup.one_by_one and bool(mismatches)
    if is_one_by_one:
        single_sentences = read_generated(generate_output(config.folder / SINGLE_SENTENCES, setup))
        lines = replace_lost_separators(lines, single_sentences, subset, chunks, separator)
    translated = align_documents(lines, generated, data_bin, subset, chunks, documents, separator)
    sentences, documents_files = translated.sentences, scored_lines(f"{subset}.documents", translated.documents)
    evaluation = Evaluation(
        setup=setup,
        sentences=sum(chunks),
        scores=score_documents(translated.documents, data_bin.lowercased, data_bin.target),
        scored_files=scored_file_names(f"{subset}.documents"),
        files_sha256=hash_files(documents_files),
        references_sha256=translated.documents.references_sha256(),
        tokens_per_second=speed,
        documents=DocumentResults(
            chunks=len(chunks),
            documents=len(documents),
            separator_mismatches=len(mismatches) if separator else None,
            translated_one_by_one=is_one_by_one,
            sentence_scores=(
                score_translations(sentences, data_bin.lowercased, data_bin.target) if sentences else None
            ),
        ),
    )
    files = {
        f"{subset}.hyp.tok": translated.tokenized_chunks,
        f"{subset}.hyp": translated.chunks,
        f"{subset}.chunks": [str(length) for length in chunks],
    }
    return ScoredOutput(evaluation, files | documents_files)


def scored_lines(stem: str, translations: Translations) -> dict[str, Sequence[str]]:
    """Return hypotheses and references, one per line, by the names that `scored_file_names` has for their files."""
    lines = {
        "bleu_tokenized": (translations.tokenized_hypotheses, translations.tokenized_references),
        "bleu_detokenized": (translations.hypotheses, translations.references),
    }
    names = scored_file_names(stem)
    return {name: text for metric in names for name, text in zip(names[metric], lines[metric], strict=True)}
