"""The translated chunks of a test set, and the documents and sentences in them, paired with references."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from relumt.plugin.tasks.document_chunks import (
    chunks_per_document,
    detach_separators,
    find_mismatches,
    join_groups,
    remove_separators,
    replace_mismatches,
    split_chunk,
    split_chunks,
)
from relumt.runs.data_bin import DataBin
from relumt.runs.translations import GeneratedOutput, Translations, lines_in_order, load_references, to_both_forms


@dataclass(frozen=True)
class DocumentTranslations:
    """Translated documents in several forms.

    Attributes:
        tokenized_chunks, chunks: one chunk per line, with separators.
        documents: one document per line, without separators.
        sentences: one sentence per line; None without separators.
    """

    tokenized_chunks: list[str]
    chunks: list[str]
    documents: Translations
    sentences: Translations | None


def load_chunks(generated: GeneratedOutput, subset: str, chunks: Sequence[int], separator: str) -> list[str]:
    """Return the translated chunks in order, with detached separators; raises UserError if one is missing."""
    lines = lines_in_order(generated.hypotheses, len(chunks), subset)
    return [detach_separators(line, separator) for line in lines]


def replace_lost_separators(
    lines: list[str], single_sentences: GeneratedOutput, subset: str, chunks: Sequence[int], separator: str
) -> list[str]:
    """Return the chunks; those that lost separators are rebuilt from translations of single sentences.

    Raises:
        UserError: a sentence was not translated.
    """
    sentences = load_chunks(single_sentences, subset, [1] * sum(chunks), separator)
    return replace_mismatches(lines, chunks, separator, sentences)


def count_mismatches(generated: GeneratedOutput, subset: str, chunks: Sequence[int], separator: str) -> int:
    """Return how many translated chunks have a different number of separators than their source."""
    return len(find_mismatches(load_chunks(generated, subset, chunks, separator), chunks, separator))


def align_documents(
    lines: list[str],
    references: GeneratedOutput,
    data_bin: DataBin,
    subset: str,
    chunks: Sequence[int],
    documents: Sequence[int],
    separator: str,
) -> DocumentTranslations:
    """Pair translated documents and sentences with their references.

    Text is tokenized and detokenized sentence by sentence with separators, and else document by document, so the
    scores of documents do not depend on the chunks.

    Args:
        lines: the translated chunks.
        references: fairseq-generate's output, for the references of a data-bin without reference texts.
        data_bin: the data-bin that was translated.
        subset: the subset that was translated.
        chunks: number of sentences in each chunk.
        documents: number of sentences in each document.
        separator: token between two sentences of a chunk, "" for none.

    Raises:
        UserError: a reference is missing, or the chunks do not make up the documents.
    """
    counts = chunks_per_document(chunks, documents)
    hypotheses = _chunks_to_both_forms(lines, separator, data_bin)
    # Reference texts have one sentence per line, fairseq's references one chunk.
    units = documents if data_bin.prepared else counts
    if not separator:
        joined = load_references(references, data_bin, subset, sum(units), lambda texts: join_groups(texts, units))
        pairs = _pair(to_both_forms(join_groups(lines, counts), data_bin), joined)
        return DocumentTranslations(*hypotheses, documents=pairs, sentences=None)
    loaded = load_references(references, data_bin, subset, sum(units))
    split_references = loaded if data_bin.prepared else [split_chunks(text, chunks, separator) for text in loaded]
    return DocumentTranslations(
        *hypotheses,
        documents=_pair(
            [_join_documents(text, counts, separator) for text in hypotheses],
            [_join_documents(text, units, separator) for text in loaded],
        ),
        sentences=_pair([split_chunks(text, chunks, separator) for text in hypotheses], split_references),
    )


def _join_documents(lines: list[str], lengths: Sequence[int], separator: str) -> list[str]:
    return join_groups([remove_separators(line, separator) for line in lines], lengths)


def _pair(hypotheses: Sequence[list[str]], references: Sequence[list[str]]) -> Translations:
    """Build Translations from (tokenized, plain) hypotheses and references."""
    return Translations(hypotheses[0], references[0], hypotheses[1], references[1])


def _chunks_to_both_forms(chunks: list[str], separator: str, data_bin: DataBin) -> tuple[list[str], list[str]]:
    """Return the chunks tokenized and as plain text, with their separators."""
    sentences = [split_chunk(chunk, separator) for chunk in chunks]
    forms = to_both_forms([sentence for chunk in sentences for sentence in chunk], data_bin)

    def rejoin(lines: list[str]) -> list[str]:
        remaining = iter(lines)
        return [f" {separator} ".join(islice(remaining, len(chunk))) for chunk in sentences]

    return rejoin(forms[0]), rejoin(forms[1])
