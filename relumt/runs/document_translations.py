"""The translated chunks of a test set, and the documents and sentences in them, paired with references."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from relumt.corpora.document_lengths import read_document_lengths
from relumt.plugin.tasks.chunks import chunk_starts
from relumt.plugin.tasks.document_chunks import (
    chunks_per_document,
    detach_separators,
    find_mismatches,
    join_groups,
    remove_separators,
    split_chunk,
    split_chunks,
)
from relumt.runs.data_bin import DataBin
from relumt.runs.evaluation_record import EvaluationSetup
from relumt.runs.translations import GeneratedOutput, Translations, lines_in_order, load_references, to_both_forms


@dataclass(frozen=True)
class Chunks:
    """The translated chunks of a test set.

    Attributes:
        subset: name of the test set.
        lines: the translations, with detached separators.
        lengths: number of sentences in each chunk.
        documents: number of sentences in each document.
        separator: token between two sentences of a chunk, "" for none.
    """

    subset: str
    lines: list[str]
    lengths: list[int]
    documents: list[int]
    separator: str

    @property
    def mismatches(self) -> list[int]:
        """The indices of the chunks with a wrong number of separators; none without separators."""
        return find_mismatches(self.lines, self.lengths, self.separator) if self.separator else []


def load_chunks(data_bin: DataBin, setup: EvaluationSetup, generated: GeneratedOutput) -> Chunks:
    """Return the chunks that fairseq-generate translated.

    Raises:
        UserError: one is missing, or the documents of the subset do not have as many sentences.
    """
    subset, separator = setup.subset, setup.flags.get("--document-separator", "")
    source, target = (np.asarray(data_bin.sizes(subset, language)) for language in data_bin.languages)
    documents = read_document_lengths(data_bin.folder / f"{subset}.docs", len(source))
    starts = chunk_starts(documents, source, target, int(setup.flags["--document-length"]), bool(separator))
    lengths = np.diff(starts, append=len(source)).tolist()
    lines = lines_in_order(generated.hypotheses, len(lengths), subset)
    return Chunks(subset, [detach_separators(line, separator) for line in lines], lengths, documents, separator)


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


def align_documents(chunks: Chunks, references: GeneratedOutput, data_bin: DataBin) -> DocumentTranslations:
    """Pair translated documents and sentences with their references.

    Text is tokenized and detokenized sentence by sentence with separators, and else document by document, so the
    scores of documents do not depend on the chunks.

    Args:
        chunks: the translated chunks.
        references: fairseq-generate's output, for the references of a data-bin without reference texts.
        data_bin: the data-bin that was translated.

    Raises:
        UserError: a reference is missing, or the chunks do not make up the documents.
    """
    separator, subset = chunks.separator, chunks.subset
    counts = chunks_per_document(chunks.lengths, chunks.documents)
    hypotheses = _chunks_to_both_forms(chunks.lines, separator, data_bin)
    # Reference texts have one sentence per line, fairseq's references one chunk.
    units = chunks.documents if data_bin.prepared else counts
    if not separator:
        joined = load_references(references, data_bin, subset, sum(units), lambda texts: join_groups(texts, units))
        documents = _pair(to_both_forms(join_groups(chunks.lines, counts), data_bin), joined)
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
