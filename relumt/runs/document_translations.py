"""The translated chunks of a test set, and the documents that they make up, beside the references."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, islice

from relumt.runs.data_bin import DataBin
from relumt.runs.documents import chunks_per_document, joined, sentences_of, split_chunk, without_separators
from relumt.runs.translations import Generated, Translations, both_forms, in_order, references_of


@dataclass(frozen=True)
class DocumentTranslations:
    """What comes of translating documents.

    Attributes:
        tokenised_chunks, chunks: a chunk a line, separators between its sentences.
        documents: a document a line, without separators, beside its reference.
    """

    tokenised_chunks: list[str]
    chunks: list[str]
    documents: Translations


def align_documents(
    generated: Generated,
    data_bin: DataBin,
    subset: str,
    chunks: Sequence[int],
    documents: Sequence[int],
    separator: str,
) -> DocumentTranslations:
    """As `translations.align`, of documents. Texts change their form a sentence at a time, whatever the chunks are.

    Args:
        generated: what fairseq-generate wrote, a chunk a number.
        data_bin: its source.
        subset: of the data-bin.
        chunks: sentences in each chunk.
        documents: sentences in each document.
        separator: the word between two sentences of a chunk, "" for none.

    Raises:
        UserError: as `translations.align`, or chunks that do not make up the documents.
    """
    counts = chunks_per_document(chunks, documents)
    hypotheses = [apart(line, separator) for line in in_order(generated.hypotheses, len(chunks), subset)]
    tokenised, plain = forms_of_chunks(hypotheses, separator, data_bin)
    in_documents = (joined([without_separators(x, separator) for x in lines], counts) for lines in (tokenised, plain))
    references = references_of(generated, data_bin, subset)
    of_lines = documents if data_bin.prepared else counts
    tokenised_references, plain_references = (
        joined([without_separators(x, separator) for x in lines], of_lines) for lines in references
    )
    tokenised_hypotheses, plain_hypotheses = in_documents
    return DocumentTranslations(
        tokenised,
        plain,
        Translations(tokenised_hypotheses, tokenised_references, plain_hypotheses, plain_references),
    )


def apart(chunk: str, separator: str) -> str:
    """A chunk with its separators as words; undoing sentencepiece glues them to the word before."""
    return chunk.replace(separator, f" {separator} ") if separator else chunk


def came_apart_otherwise(generated: Generated, chunks: Sequence[int], separator: str) -> list[int]:
    """Numbers of the chunks whose translation has another number of separators than the chunk has sentences to part."""
    lines = {number: apart(line, separator) for number, line in generated.hypotheses.items()}
    return [n for n, count in enumerate(chunks) if n in lines and len(split_chunk(lines[n], separator)) != count]


def one_by_one(
    generated: Generated, sentences: Generated, chunks: Sequence[int], others: Sequence[int], separator: str
) -> Generated:
    """The translated chunks, with those numbered in `others` put together from translations of single sentences.

    Raises:
        UserError: a sentence of them was not translated.
    """
    starts = list(accumulate(chunks, initial=0))
    lines = in_order(sentences.hypotheses, starts[-1], "sentences")
    # A model of documents can go on after a single sentence, too.
    lines = [without_separators(apart(line, separator), separator) for line in lines]
    together = {n: f" {separator} ".join(lines[starts[n] : starts[n + 1]]) for n in others}
    return Generated(generated.hypotheses | together, generated.references)


def sentences_of_chunks(
    translated: DocumentTranslations,
    generated: Generated,
    data_bin: DataBin,
    subset: str,
    chunks: Sequence[int],
    separator: str,
) -> Translations:
    """The translated sentences beside their references; a chunk that lost separators is one line and empty ones."""
    tokenised, plain = (
        sentences_of(lines, chunks, separator, None).lines for lines in (translated.tokenised_chunks, translated.chunks)
    )
    references = references_of(generated, data_bin, subset)
    if not data_bin.prepared:
        references = tuple(sentences_of(lines, chunks, separator, None).lines for lines in references)
    return Translations(tokenised, references[0], plain, references[1])


def forms_of_chunks(chunks: list[str], separator: str, data_bin: DataBin) -> tuple[list[str], ...]:
    """The chunks, tokenised and plain, with the separators that they came with."""
    sentences = [split_chunk(chunk, separator) for chunk in chunks]
    forms = both_forms([sentence for chunk in sentences for sentence in chunk], data_bin)

    def together(lines: list[str]) -> list[str]:
        rest = iter(lines)
        return [f" {separator} ".join(islice(rest, len(chunk))) for chunk in sentences]

    return tuple(map(together, forms))
