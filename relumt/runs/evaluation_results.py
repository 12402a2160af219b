"""Score what fairseq-generate wrote, and write the translations beside their references."""

import re
from pathlib import Path

from relumt.data.chunks import sentences_per_chunk
from relumt.data.document_lengths import read_document_lengths, write_lengths
from relumt.errors import UserError
from relumt.runs.document_chunks import find_mismatches
from relumt.runs.document_translations import (
    align_documents,
    count_mismatches,
    load_chunks,
    replace_lost_separators,
)
from relumt.runs.evaluation_record import DocumentResults, Evaluation, EvaluationSetup, Score, SubsetScores
from relumt.runs.names import shown
from relumt.runs.record import RECORD
from relumt.runs.run_config import RunConfig
from relumt.runs.score import score_documents, score_translations, tokenized_bleu
from relumt.runs.translations import GeneratedOutput, Translations, align_translations, read_generated, read_speed
from relumt.text_files import write_lines

SINGLE_SENTENCES = "sentences"
"""Subfolder of a run's folder with a document-level model's translations of single sentences."""


def generate_log(run: Path, setup: EvaluationSetup) -> Path:
    """Return the path of fairseq-generate's messages."""
    return run / f"generate-{setup.subset}.log"


def generate_output(folder: Path, setup: EvaluationSetup) -> Path:
    """Return the path of the translations that fairseq-generate writes with `folder` as --results-path."""
    return folder / f"generate-{setup.subset}.txt"


def evaluate_output(config: RunConfig, setup: EvaluationSetup) -> Evaluation:
    """Score the output of fairseq-generate, and write translations and references to the run's folder.

    Raises:
        UserError: fairseq-generate did not translate every sentence.
    """
    subset, ignore_case = setup.subset, config.data_bin.lowercased
    output = generate_output(config.folder, setup)
    generated = read_generated(output)
    speed = read_speed(generate_log(config.folder, setup), output)
    if document_length(setup):
        return _evaluate_documents(config, setup, generated, speed)
    translations = align_translations(generated, config.data_bin, subset)
    return Evaluation(
        setup=setup,
        sentences=len(translations.hypotheses),
        scores=score_translations(translations, ignore_case),
        scored_files=write_scored_files(config.folder, subset, translations),
        references_sha256=translations.references_sha256(),
        tokens_per_second=speed,
        subsets=_score_subsets(config, subset, translations),
    )


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
        raise UserError(f"{RECORD}: --document-length is {shown(length)}, expected a number of tokens; translate again")
    return int(length)


def _score_subsets(config: RunConfig, subset: str, translations: Translations) -> dict[str, SubsetScores]:
    """Score the subsets of a test set."""
    scores = {}
    for name, left_out in config.data_bin.subsets(subset, len(translations.hypotheses)).items():
        part = translations.without(set(left_out))
        scores[name] = SubsetScores(len(part.hypotheses), score_translations(part, config.data_bin.lowercased))
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


def _evaluate_documents(
    config: RunConfig, setup: EvaluationSetup, generated: GeneratedOutput, speed: float | None
) -> Evaluation:
    """Score whole documents and, if chunks have separators, sentences; write the chunks and their lengths."""
    subset, data_bin, folder = setup.subset, config.data_bin, config.folder
    separator = setup.flags.get("--document-separator", "")
    chunks, documents = _chunks_and_documents(config, setup)
    lines = load_chunks(generated, subset, chunks, separator)
    mismatches = find_mismatches(lines, chunks, separator) if separator else []
    single_sentences = generate_output(folder / SINGLE_SENTENCES, setup)
    is_one_by_one = bool(mismatches) and single_sentences.is_file()
    if is_one_by_one:
        lines = replace_lost_separators(lines, read_generated(single_sentences), subset, chunks, separator)
    translated = align_documents(lines, generated, data_bin, subset, chunks, documents, separator)
    write_lines(folder / f"{subset}.hyp.tok", translated.tokenized_chunks)
    write_lines(folder / f"{subset}.hyp", translated.chunks)
    write_lengths(folder / f"{subset}.chunks", chunks)
    sentences = translated.sentences
    return Evaluation(
        setup=setup,
        sentences=sum(chunks),
        scores=score_documents(translated.documents, data_bin.lowercased),
        scored_files=write_scored_files(folder, f"{subset}.documents", translated.documents),
        references_sha256=translated.documents.references_sha256(),
        tokens_per_second=speed,
        documents=DocumentResults(
            chunks=len(chunks),
            documents=len(documents),
            separator_mismatches=len(mismatches) if separator else None,
            translated_one_by_one=is_one_by_one,
            sentence_scores=score_translations(sentences, data_bin.lowercased) if sentences else None,
        ),
    )


def write_scored_files(folder: Path, stem: str, translations: Translations) -> dict[str, tuple[str, str]]:
    """Write hypotheses and references, one per line, to STEM.hyp, STEM.ref, STEM.hyp.tok and STEM.ref.tok.

    Returns:
        The names of the files of hypotheses and references, by the metric that is computed on them.
    """
    forms = {
        "bleu_tokenized": (".tok", translations.tokenized_hypotheses, translations.tokenized_references),
        "bleu_detokenized": ("", translations.hypotheses, translations.references),
    }
    names = {}
    for metric, (end, hypotheses, references) in forms.items():
        names[metric] = (f"{stem}.hyp{end}", f"{stem}.ref{end}")
        for name, lines in zip(names[metric], (hypotheses, references), strict=True):
            write_lines(folder / name, lines)
    return names
