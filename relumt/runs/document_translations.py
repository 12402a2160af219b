"""The translated chunks of a test set, and the documents and sentences in them, paired with references."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from relumt.corpora.document_lengths import read_document_lengths
from relumt.plugin.tasks.chunks import sentences_per_chunk
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
from relumt.runs.evaluation_record import EvaluationSetup
from relumt.runs.translations import GeneratedOutput, Translations, lines_in_order, load_references, to_both_forms


@dataclass(frozen=True)
class Chunks:
    """How the sentences of a test set were put together.

    Attributes:
        subset: name of the test set.
        lengths: number of sentences in each translated chunk.
        documents: number of sentences in each document.
        separator: token between two sentences of a chunk, "" for none.
    """

    subset: str
    lengths: list[int]
    documents: list[int]
    separator: str

    def load(self, generated: GeneratedOutput) -> list[str]:
        """Return the translated chunks in order, with detached separators; raises UserError if one is missing."""
        lines = lines_in_order(generated.hypotheses, len(self.lengths), self.subset)
        return [detach_separators(line, self.separator) for line in lines]

    def mismatches(self, lines: Sequence[str]) -> list[int]:
        """Return the indices of the translated chunks with a wrong number of separators; none without separators."""
        return find_mismatches(lines, self.lengths, self.separator) if self.separator else []

    def replace_mismatches(self, lines: Sequence[str], single_sentences: GeneratedOutput) -> list[str]:
        """Return the chunks; those that lost separators are rebuilt from translations of single sentences.

        Raises:
            UserError: a sentence was not translated.
        """
        sentences = lines_in_order(single_sentences.hypotheses, sum(self.lengths), self.subset)
        detached = [detach_separators(line, self.separator) for line in sentences]
        return replace_mismatches(lines, self.lengths, self.separator, detached)


def find_chunks(data_bin: DataBin, setup: EvaluationSetup) -> Chunks:
    """Return how a subset was put together; raises UserError if its documents do not have as many sentences."""
    separator = setup.flags.get("--document-separator", "")
    source, target = (f"{data_bin.prefix(setup.subset)}.{language}" for language in data_bin.languages)
    lengths = sentences_per_chunk(source, target, int(setup.flags["--document-length"]), bool(separator))
    documents = read_document_lengths(data_bin.folder / f"{setup.subset}.docs", sum(lengths))
    return Chunks(setup.subset, lengths, documents, separator)


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


def align_documents(
    lines: list[str], references: GeneratedOutput, data_bin: DataBin, chunks: Chunks
) -> DocumentTranslations:
    """Pair translated documents and sentences with their references.

    Text is tokenized and detokenized sentence by sentence with separators, and else document by document, so the
    scores of documents do not depend on the chunks.

    Args:
        lines: the translated chunks.
        references: fairseq-generate's output, for the references of a data-bin without reference texts.
        data_bin: the data-bin that was translated.
        chunks: how the translated subset was put together.

    Raises:
        UserError: a reference is missing, or the chunks do not make up the documents.
    """
    separator, subset = chunks.separator, chunks.subset
    counts = chunks_per_document(chunks.lengths, chunks.documents)
    hypotheses = _chunks_to_both_forms(lines, separator, data_bin)
    # Reference texts have one sentence per line, fairseq's references one chunk.
    units = chunks.documents if data_bin.prepared else counts
    if not separator:
        joined = load_references(references, data_bin, subset, sum(units), lambda texts: join_groups(texts, units))
        documents = _pair(to_both_forms(join_groups(lines, counts), data_bin), joined)
        return DocumentTranslations(*hypotheses, documents, sentences=None)
    loaded = load_references(references, data_bin, subset, sum(units))

    def join(texts: list[str], lengths: Sequence[int]) -> list[str]:
        return join_groups([remove_separators(line, separator) for line in texts], lengths)

    def split(texts: list[str]) -> list[str]:
        return split_chunks(texts, chunks.lengths, separator)

    documents = _pair([join(text, counts) for text in hypotheses], [join(text, units) for text in loaded])
    references_by_sentence = loaded if data_bin.prepared else [split(text) for text in loaded]
    return DocumentTranslations(
        *hypotheses, documents, sentences=_pair([split(text) for text in hypotheses], references_by_sentence)
    )


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
