"""Scores what fairseq-generate wrote with sacreBLEU, and writes the translations beside their references.

The scores are BLEU on tokens and on plain text, chrF and, for sentences, TER.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path

from sacrebleu.metrics import BLEU, CHRF, TER
from sacrebleu.metrics.base import Metric

from relumt.corpora.tokenization import bleu_tokenizer
from relumt.errors import UserError
from relumt.files import changed_files, load_text
from relumt.runs.evaluation_record import DocumentResults, Evaluation, EvaluationSetup, Score, Scores, SubsetScores
from relumt.runs.run_config import RunConfig
from relumt.runs.translations import GeneratedOutput, Translations, align_translations, read_generated, read_speed


def score_translations(translations: Translations, ignore_case: bool, language: str, ter: bool = True) -> Scores:
    """Score on Moses tokens (BLEU as in [RF]) and on detokenized text (comparable across papers).

    Args:
        translations: what to score.
        ignore_case: for lowercased text; the signatures then say case:lc, which TER's always does.
        language: the target language, which decides how BLEU splits detokenized text.
        ter: whether to compute TER, whose search for shifts takes hours on whole documents.
    """
    plain = (translations.hypotheses, translations.references)
    detokenized = BLEU(tokenize=bleu_tokenizer(language), lowercase=ignore_case)
    return {
        "bleu_tokenized": tokenized_bleu(translations, ignore_case),
        "bleu_detokenized": corpus_score(detokenized, *plain),
        "chrf": corpus_score(CHRF(lowercase=ignore_case), *plain),
    } | ({"ter": corpus_score(TER(), *plain)} if ter else {})


def tokenized_bleu(translations: Translations, ignore_case: bool) -> Score:
    """Score Moses tokens by BLEU."""
    # force only silences sacreBLEU's warning that the text looks tokenized, which it is meant to be
    metric = BLEU(tokenize="none", lowercase=ignore_case, force=True)
    return corpus_score(metric, translations.tokenized_hypotheses, translations.tokenized_references)


def corpus_score(metric: Metric, hypotheses: list[str], references: list[str]) -> Score:
    """Score a corpus with one reference per sentence."""
    result = metric.corpus_score(hypotheses, [references])
    return Score(result.score, str(metric.get_signature()), str(result))


def generate_log(folder: Path, subset: str) -> Path:
    """Return the path of fairseq-generate's messages in the folder of a run or of one of its translations."""
    return folder / f"generate-{subset}.log"


def generate_output(folder: Path, setup: EvaluationSetup) -> Path:
    """Return the path of the translations that fairseq-generate writes with `folder` as --results-path."""
    return folder / f"generate-{setup.subset}.txt"


def score_output(config: RunConfig, setup: EvaluationSetup) -> tuple[Evaluation, dict[str, Sequence[str]]]:
    """Score the output of fairseq-generate, without writing anything.

    Returns:
        What run.json records; translations and references, by the name of the file that they are to be written to.

    Raises:
        UserError: fairseq-generate did not translate every sentence.
    """
    subset, data_bin, output = setup.subset, config.data_bin, generate_output(config.folder, setup)
    generated = read_generated(output)
    documents, subsets, stem = None, {}, subset
    files: dict[str, Sequence[str]] = {}
    if has_documents(setup):
        stem = f"{subset}.documents"
        translations, documents, files = _score_documents(config, setup, generated)
        sentences = sum(map(int, files[f"{subset}.chunks"]))
    else:
        translations = align_translations(generated, data_bin, subset)
        sentences, subsets = len(translations.hypotheses), _score_subsets(config, subset, translations)
    scored = _scored_lines(stem, translations)
    files |= {name: lines for pair in scored.values() for name, lines in pair.items()}
    evaluation = Evaluation(
        setup=setup,
        sentences=sentences,
        scores=score_translations(translations, data_bin.lowercased, data_bin.target, ter=documents is None),
        scored_files={metric: tuple(pair) for metric, pair in scored.items()},  # type: ignore[misc]  # of two names
        files_sha256={name: _sha256_of_lines(lines) for pair in scored.values() for name, lines in pair.items()},
        references_sha256=translations.references_sha256(),
        tokens_per_second=read_speed(generate_log(config.folder, subset), output),
        subsets=subsets,
        documents=documents,
    )
    return evaluation, files


def has_documents(setup: EvaluationSetup) -> bool:
    """Return whether chunks of documents were translated, and not sentences."""
    return setup.flags.get("--document-length", "0") != "0"


def bleu_of_output(config: RunConfig, setup: EvaluationSetup, generated: GeneratedOutput) -> Score:
    """Return the tokenized BLEU of sentences, or of whole documents, without writing anything.

    Raises:
        UserError: fairseq-generate did not translate every sentence.
    """
    if has_documents(setup):
        from relumt.runs.document_translations import align_documents, load_chunks

        chunks = load_chunks(config.data_bin, setup, generated)
        translations = align_documents(chunks, generated, config.data_bin).documents
    else:
        translations = align_translations(generated, config.data_bin, setup.subset)
    return tokenized_bleu(translations, config.data_bin.lowercased)


def _score_documents(
    config: RunConfig, setup: EvaluationSetup, generated: GeneratedOutput
) -> tuple[Translations, DocumentResults, dict[str, Sequence[str]]]:
    """Return the translated documents, what is known of their chunks and sentences, and the files of the chunks."""
    from relumt.runs.document_translations import align_documents, load_chunks

    subset, data_bin, chunks = setup.subset, config.data_bin, load_chunks(config.data_bin, setup, generated)
    translated = align_documents(chunks, generated, data_bin)
    sentences = translated.sentences
    results = DocumentResults(
        chunks=len(chunks.lengths),
        documents=len(chunks.documents),
        separator_mismatches=len(chunks.mismatches) if chunks.separator else None,
        sentence_scores=score_translations(sentences, data_bin.lowercased, data_bin.target) if sentences else None,
    )
    files: dict[str, Sequence[str]] = {
        f"{subset}.hyp.tok": translated.tokenized_chunks,
        f"{subset}.hyp": translated.chunks,
        f"{subset}.chunks": [str(length) for length in chunks.lengths],
    }
    return translated.documents, results, files


def _score_subsets(config: RunConfig, subset: str, translations: Translations) -> dict[str, SubsetScores]:
    """Score the subsets of a test set."""
    data_bin, scores = config.data_bin, {}
    path = data_bin.text_path(subset, "subsets.json")
    if not path.exists():
        return {}
    from relumt.corpora.bitext import read_subsets

    for name, left_out in read_subsets(path, len(translations.hypotheses)).items():
        part = translations.without(set(left_out))
        part_scores = score_translations(part, data_bin.lowercased, data_bin.target)
        scores[name] = SubsetScores(len(part.hypotheses), part_scores)
    return scores


def _scored_lines(stem: str, translations: Translations) -> dict[str, dict[str, Sequence[str]]]:
    """Return the lines of the files of hypotheses and of references, by the metric that is computed on them."""
    return {
        "bleu_tokenized": {
            f"{stem}.hyp.tok": translations.tokenized_hypotheses,
            f"{stem}.ref.tok": translations.tokenized_references,
        },
        "bleu_detokenized": {f"{stem}.hyp": translations.hypotheses, f"{stem}.ref": translations.references},
    }


def _sha256_of_lines(lines: Sequence[str]) -> str:
    """Return the SHA-256 of the file that `write_lines` would write."""
    return hashlib.sha256("".join(line + "\n" for line in lines).encode()).hexdigest()


def load_scored_lines(folder: Path, evaluation: Evaluation, metric: str) -> tuple[list[str], list[str]]:
    """Return the hypotheses and references that a score was computed on.

    Args:
        folder: the folder of the evaluation's files.
        evaluation: the evaluation.
        metric: key of `evaluation.scored_files`.

    Raises:
        UserError: a file is missing or is not the one that was scored, or their numbers of lines differ.
    """
    names = evaluation.scored_files[metric]
    hypotheses, references = (load_text(folder / name) for name in names)
    recorded = {name: evaluation.files_sha256[name] for name in names if name in evaluation.files_sha256}
    if changed := changed_files(folder, recorded):
        raise UserError(f"{folder / changed[0]}: is not the file that was scored; translate again")
    if len(hypotheses) != len(references):
        raise UserError(
            f"{folder / names[0]} has {len(hypotheses)} lines, {names[1]} has {len(references)}; translate again"
        )
    return hypotheses, references
