"""Translate sentences and documents with a trained model, and align translations: `relumt.load`."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, count, islice, pairwise
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from torch import Tensor

from relumt.attention.metrics.words import join_words
from relumt.corpora.alignment import Unit
from relumt.errors import UserError, print_status
from relumt.plugin.tasks.chunks import chunk_starts
from relumt.plugin.tasks.document_chunks import chunks_per_document
from relumt.plugin.tasks.documents import concatenate
from relumt.runs.inference.export import is_model_folder, read_config
from relumt.runs.inference.loaded_model import LoadedModel, load_model
from relumt.runs.inference.search import MAX_BEAM, SearchSettings, batches_by_length, search_of_run
from relumt.runs.inference.text_encoding import TextEncoding, load_encoding
from relumt.runs.inference.word_alignment import Alignment, align_by_weights, last_cross_attention, merge_words
from relumt.runs.record import find_record_of_checkpoint

BATCH_SIZE = 64
"""Sentences in a batch by default."""


@dataclass(frozen=True)
class Translation:
    """A translation of a sentence, or of a chunk of consecutive sentences of a document.

    Attributes:
        text: plain text, or Moses tokens if the model was loaded with `tokenized`.
        score: log2-probability divided by the length penalty, as fairseq-generate prints it.
        tokens: the subwords.
        token_scores: log2-probability of each subword and of the end of the sentence.
        source_tokens: the subwords that the model read.
        sentences: `text` by sentence; one for the whole text if the model was trained without a separator between
            sentences, or has lost one.
        source, target: token indices of the two sides, each with its end-of-sentence symbol.
    """

    text: str
    score: float
    tokens: list[str]
    token_scores: list[float]
    source_tokens: list[str]
    sentences: list[str]
    source: Tensor = field(repr=False, compare=False)
    target: Tensor = field(repr=False, compare=False)


EMPTY = Translation("", 0.0, [], [], [], [""], torch.empty(0, dtype=torch.long), torch.empty(0, dtype=torch.long))
"""The translation of a text without words, which the model does not read."""


class Translator:
    """A trained model that translates text.

    Args:
        loaded: the model with its fairseq task.
        encoding: turns text into the model's input, and its output into text.
        search: the default settings of the beam search.
    """

    def __init__(self, loaded: LoadedModel, encoding: TextEncoding, search: SearchSettings) -> None:
        self.loaded = loaded
        self.encoding = encoding
        self.search = search

    def translate(
        self, texts: Sequence[str], beam: int | None = None, batch_size: int = BATCH_SIZE
    ) -> list[Translation]:
        """Return the best translation of each text; see `translate_nbest`."""
        return [found[0] if found else EMPTY for found in self.translate_nbest(texts, 1, beam, batch_size)]

    def translate_nbest(
        self,
        texts: Sequence[str],
        nbest: int,
        beam: int | None = None,
        batch_size: int = BATCH_SIZE,
        first_number: int = 1,
    ) -> list[list[Translation]]:
        """Return the best translations of each text, at most `nbest`, best first; none of a text without words.

        Args:
            texts: sentences in the source language.
            nbest: number of translations.
            beam: size of the beam; None for that of the search settings.
            batch_size: largest number of sentences in a batch.
            first_number: number of the first text in error messages.

        Raises:
            UserError: a text is too long for the model, or the beam is too small for `nbest`.
        """
        search = self.search_with(beam, nbest)
        sources = self.encode(texts, map("line {}".format, count(first_number)))
        return self._translate(sources, nbest, search, batch_size)

    def translate_documents(
        self,
        documents: Sequence[Sequence[str]],
        beam: int | None = None,
        batch_size: int = BATCH_SIZE,
        first_number: int = 1,
    ) -> list[list[Translation]]:
        """Return the translation of each document: of its chunks, which are as long as the model was trained to read.

        A chunk takes the next sentences of its document until its source would exceed --document-length. For a model
        of sentences, and for a sentence that is longer, a chunk is one sentence. Chunks whose translation has another
        number of separators than the source, or was cut off at the longest length that the search allows, are
        translated again, sentence by sentence. `translate` translates sentences without context.

        Args:
            documents: the sentences of each document.
            beam, batch_size: see `translate_nbest`.
            first_number: number of the first document in error messages.

        Raises:
            UserError: a sentence has no words or is too long for the model.
        """
        search = self.search_with(beam, 1)
        numbered = enumerate(documents, start=first_number)
        places = [f"document {n}, sentence {s}" for n, document in numbered for s in range(1, len(document) + 1)]
        sentences = self.encode([text for document in documents for text in document], places)
        for place, sentence in zip(places, sentences, strict=True):
            if len(sentence) == 1:
                raise UserError(f"{place} has no words; give text in the model's source language")
        lengths, sizes = list(map(len, documents)), np.array(list(map(len, sentences)))
        separator, _ = self.loaded.separators
        starts = chunk_starts(lengths, sizes, sizes, self.loaded.document_length, bool(len(separator)))
        chunks = [sentences[start:end] for start, end in pairwise([*starts, len(sentences)])]
        sources = [concatenate(chunk, separator) for chunk in chunks]
        found = self._translate(sources, 1, search, batch_size)
        again = [n for n, chunk in enumerate(chunks) if len(chunk) > 1 and not self._is_whole(found[n][0], search)]
        if again:
            print_status(f"{len(again)} of {len(chunks)} chunks: translated again, sentence by sentence")
        single = [sentence for number in again for sentence in chunks[number]]
        singles = iter(self._translate(single, 1, search, batch_size))
        for number in again:
            found[number] = [best for (best,) in islice(singles, len(chunks[number]))]
        counts, parts = chunks_per_document(list(map(len, chunks)), lengths), iter(found)
        return [list(chain.from_iterable(islice(parts, count))) for count in counts]

    def _is_whole(self, translation: Translation, search: SearchSettings) -> bool:
        """Return whether a translation has as many separators as its source, and was not cut off."""
        longest = min(search.max_len_a * len(translation.source) + search.max_len_b, self.loaded.max_positions[1] - 1)
        is_split = len(translation.sentences) == self._num_sentences(translation.source)
        return is_split and len(translation.tokens) < int(longest)

    def _num_sentences(self, source: Tensor) -> int:
        """Return the number of sentences in the token indices of a chunk."""
        return len(split_at(source, self.loaded.separators[0]))

    def _translate(
        self, sources: Sequence[Tensor], nbest: int, search: SearchSettings, batch_size: int
    ) -> list[list[Translation]]:
        """Return the best translations of token indices, at most `nbest`, best first."""
        found = [best[:nbest] for best in search_hypotheses(self.loaded, sources, search, batch_size)]
        _, separator = self.loaded.separators
        parts = [[split_at(hypothesis["tokens"].cpu(), separator) for hypothesis in best] for best in found]
        decoded = iter(self.encoding.decode(part for best in parts for hypothesis in best for part in hypothesis))
        return [
            [
                self._describe(source, hypothesis, list(islice(decoded, len(own))))
                for hypothesis, own in zip(best, own_parts, strict=True)
            ]
            for source, best, own_parts in zip(sources, found, parts, strict=True)
        ]

    def _describe(self, source: Tensor, hypothesis: dict[str, Any], sentences: list[str]) -> Translation:
        """Return fairseq's hypothesis as a translation."""
        target, text = hypothesis["tokens"].cpu(), " ".join(filter(None, sentences))
        return Translation(
            text,
            float(hypothesis["score"]) / math.log(2),
            [self.encoding.target[index] for index in target[:-1].tolist()],
            (hypothesis["positional_scores"] / math.log(2)).tolist(),
            [self.encoding.source[index] for index in source[:-1].tolist()],
            sentences if len(sentences) == self._num_sentences(source) else [text],
            source,
            target,
        )

    @torch.no_grad()
    def align(
        self, translations: Sequence[Translation], batch_size: int = BATCH_SIZE, unit: Unit = "subwords"
    ) -> list[Alignment | None]:
        """Return the attention and alignment of each translation, between subwords or between words.

        None stands for an empty text, or that the model has no attention weights. The words are those of `words`.
        """
        if unit not in get_args(Unit):
            raise ValueError(f"unit must be one of {', '.join(get_args(Unit))}, not {unit!r}")
        found: list[Alignment | None] = [None] * len(translations)
        numbers = [number for number, translation in enumerate(translations) if len(translation.target)]
        for batch in batches_by_length([len(translations[number].target) for number in numbers], batch_size):
            batch_numbers = [numbers[index] for index in batch]
            pairs = [(translations[number].source, translations[number].target) for number in batch_numbers]
            for number, weights in zip(batch_numbers, last_cross_attention(self.loaded, pairs), strict=True):
                if weights is not None and unit == "words":
                    one = translations[number]
                    weights = merge_words(weights, one.source_tokens, one.tokens, self.encoding.data_bin.bpe)
                found[number] = None if weights is None else align_by_weights(weights)
        return found

    def search_with(self, beam: int | None, nbest: int) -> SearchSettings:
        """Return the search settings with another beam; raise UserError unless 1 ≤ `nbest` ≤ beam ≤ MAX_BEAM."""
        search = self.search if beam is None else replace(self.search, beam=beam)
        if not 1 <= search.beam <= MAX_BEAM:
            raise UserError(f"the beam is {search.beam}; choose a number from 1 to {MAX_BEAM}")
        if not 1 <= nbest <= search.beam:
            raise UserError(f"{nbest} translations were asked for, but the beam is {search.beam}; choose a larger beam")
        return search

    def words(self, tokens: Sequence[str]) -> list[str]:
        """Return the words of subwords, such as `tokens` or `source_tokens` of a translation."""
        return join_words(tokens, self.encoding.data_bin.bpe)

    def encode(self, texts: Sequence[str], places: Iterable[str]) -> list[Tensor]:
        """Return the token indices that the model reads for each text; messages call the texts by their `places`.

        Raises:
            TypeError: `texts` is a string.
            UserError: a text is too long for the model.
        """
        if isinstance(texts, str):
            raise TypeError("expected a sequence of texts, got one string; put it in a list")
        sources = self.encoding.encode(texts)
        longest, _ = self.loaded.max_positions
        for place, source in zip(places, sources, strict=False):
            if len(source) > longest:
                raise UserError(
                    f"{place}: has {len(source)} subwords, but the model reads at most {longest}; split the line"
                )
        return sources


def split_at(tokens: Tensor, separator: Tensor) -> list[Tensor]:
    """Return the parts of token indices [T] between separators; `separator` has length 1, or 0 for none."""
    parts = tokens.tensor_split(torch.isin(tokens, separator).nonzero().flatten())
    return [part[~torch.isin(part, separator)] for part in parts]


def search_hypotheses(
    loaded: LoadedModel, sources: Sequence[Tensor], search: SearchSettings, batch_size: int = BATCH_SIZE
) -> list[list[dict[str, Any]]]:
    """Return fairseq's hypotheses for each source, best first; none for one that is only the end of the sentence.

    Args:
        loaded: the model.
        sources: token indices, each with the end-of-sentence symbol.
        search: settings of the beam search.
        batch_size: largest number of sentences in a batch.
    """
    numbers = [number for number, source in enumerate(sources) if len(source) > 1]
    generator = loaded.task.build_generator([loaded.model], search.as_arguments())
    found: list[list[dict[str, Any]]] = [[] for _ in sources]
    for batch in batches_by_length([len(sources[number]) for number in numbers], batch_size):
        batch_numbers = [numbers[index] for index in batch]
        sample = loaded.collate_sources([sources[number] for number in batch_numbers])
        hypotheses = generator.generate([loaded.model], sample)
        for position, sentence_hypotheses in zip(sample["id"].tolist(), hypotheses, strict=True):
            found[batch_numbers[position]] = sentence_hypotheses
    return found


def load(
    checkpoint_or_run: str | Path, data: str | Path | None = None, cpu: bool = False, tokenized: bool = False
) -> Translator:
    """Load a trained model that translates text.

    The search settings are those that the run's test set was translated with, or fairseq's defaults, which for
    documents have the --max-len-a of training.

    Args:
        checkpoint_or_run: folder of a run, for its scored (else best) checkpoint; or a checkpoint; or a folder that
            `relumt export --to safetensors` wrote.
        data: data-bin that the model was trained on; None for the one that the run names.
        cpu: do not use a GPU.
        tokenized: exchange Moses tokens instead of plain text, as in the texts of a data-bin.

    Raises:
        UserError: the model or the data-bin cannot be loaded.
    """
    loaded, folder = load_model(Path(checkpoint_or_run), None if data is None else Path(data), cpu)
    return Translator(loaded, load_encoding(folder, loaded.task, tokenized), default_search(loaded))


def default_search(loaded: LoadedModel) -> SearchSettings:
    """Return the search settings that belong to a checkpoint or an exported model, else the defaults."""
    folder = loaded.path.parent
    if is_model_folder(folder):
        return read_config(folder).search
    return search_of_run(find_record_of_checkpoint(loaded.path), loaded.document_length)
