"""Translate text with a trained model, and align translations by its cross-attention: `relumt.load`. Shapes: T S.

T target subwords and S source subwords, each with the end of the sentence.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from relumt.attention import AttentionMask, AttentionOutput, Need
from relumt.corpora.alignment import links_of_largest_weight
from relumt.errors import UserError
from relumt.plugin.model.attention import MechanismAttention
from relumt.plugin.model.hooks import attention_hook
from relumt.runs.inference.export import is_model_folder, read_config
from relumt.runs.inference.loaded_model import LoadedModel, TokenPair, load_model
from relumt.runs.inference.search import MAX_BEAM, SearchSettings, batches_by_length, search_of_run
from relumt.runs.inference.text_encoding import TextEncoding, load_encoding
from relumt.runs.record import find_record_of_checkpoint

BATCH_SIZE = 64
"""Sentences in a batch by default."""


@dataclass(frozen=True)
class Translation:
    """A translation of a sentence.

    Attributes:
        text: plain text, or Moses tokens if the model was loaded with `tokenized`.
        score: log2-probability divided by the length penalty, as fairseq-generate prints it.
        tokens: the subwords.
        token_scores: log2-probability of each subword and of the end of the sentence.
        source_tokens: the subwords that the model read.
        source, target: token indices of the two sides, each with its end-of-sentence symbol.
    """

    text: str
    score: float
    tokens: list[str]
    token_scores: list[float]
    source_tokens: list[str]
    source: Tensor = field(repr=False, compare=False)
    target: Tensor = field(repr=False, compare=False)


EMPTY = Translation("", 0.0, [], [], [], torch.empty(0, dtype=torch.long), torch.empty(0, dtype=torch.long))
"""The translation of a text without words, which the model does not read."""


@dataclass(frozen=True)
class Alignment:
    """How a translation is aligned with its source.

    Attributes:
        weights: cross-attention of the last layer, averaged over heads, [T, S]; the last row predicts the end of the
            sentence, and the last column is the source's.
        links: (source subword, target subword), counted from 0: for each target subword, the source subword with the
            largest weight; none if all weights are 0. The ends of the sentences are left out.
    """

    weights: Tensor
    links: list[tuple[int, int]]


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
        sources = self.encode(texts, first_number)
        found = [best[:nbest] for best in search_hypotheses(self.loaded, sources, search, batch_size)]
        decoded = iter(self.encoding.decode(hypothesis["tokens"].cpu() for best in found for hypothesis in best))
        return [
            [self._describe(source, hypothesis, next(decoded)) for hypothesis in best]
            for source, best in zip(sources, found, strict=True)
        ]

    def _describe(self, source: Tensor, hypothesis: dict[str, Any], text: str) -> Translation:
        """Return fairseq's hypothesis as a translation."""
        target = hypothesis["tokens"].cpu()
        return Translation(
            text,
            float(hypothesis["score"]) / math.log(2),
            [self.encoding.target[index] for index in target[:-1].tolist()],
            (hypothesis["positional_scores"] / math.log(2)).tolist(),
            [self.encoding.source[index] for index in source[:-1].tolist()],
            source,
            target,
        )

    @torch.no_grad()
    def align(self, translations: Sequence[Translation], batch_size: int = BATCH_SIZE) -> list[Alignment | None]:
        """Return the attention and alignment of each translation.

        None stands for an empty text, or that the model has no attention weights.
        """
        found: list[Alignment | None] = [None] * len(translations)
        numbers = [number for number, translation in enumerate(translations) if len(translation.target)]
        for batch in batches_by_length([len(translations[number].target) for number in numbers], batch_size):
            batch_numbers = [numbers[index] for index in batch]
            pairs = [(translations[number].source, translations[number].target) for number in batch_numbers]
            for number, weights in zip(batch_numbers, last_cross_attention(self.loaded, pairs), strict=True):
                found[number] = None if weights is None else Alignment(weights, find_links(weights))
        return found

    def search_with(self, beam: int | None, nbest: int) -> SearchSettings:
        """Return the search settings with another beam; raise UserError unless 1 ≤ `nbest` ≤ beam ≤ MAX_BEAM."""
        search = self.search if beam is None else replace(self.search, beam=beam)
        if not 1 <= search.beam <= MAX_BEAM:
            raise UserError(f"the beam is {search.beam}; choose a number from 1 to {MAX_BEAM}")
        if not 1 <= nbest <= search.beam:
            raise UserError(f"{nbest} translations were asked for, but the beam is {search.beam}; choose a larger beam")
        return search

    def encode(self, texts: Sequence[str], first_number: int = 1) -> list[Tensor]:
        """Return the token indices that the model reads for each text.

        Raises:
            UserError: a text is too long for the model.
        """
        sources = self.encoding.encode(texts)
        longest, _ = self.loaded.max_positions
        for number, source in enumerate(sources, start=first_number):
            if len(source) > longest:
                raise UserError(
                    f"line {number}: has {len(source)} subwords, but the model reads at most {longest}; split the line"
                )
        return sources


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

    The search settings are those that the run's test set was translated with, or fairseq's defaults.

    Args:
        checkpoint_or_run: folder of a run, for its scored (else best) checkpoint; or a checkpoint; or a folder that
            `relumt export --to safetensors` wrote.
        data: data-bin that the model was trained on; None for the one that the run names.
        cpu: do not use a GPU.
        tokenized: exchange Moses tokens instead of plain text, as in the texts of a data-bin.

    Raises:
        UserError: the model or the data-bin cannot be loaded, or the model was trained to translate documents.
    """
    loaded, folder = load_model(Path(checkpoint_or_run), None if data is None else Path(data), cpu)
    refuse_documents(loaded)
    encoding = load_encoding(folder, loaded.task, tokenized)
    return Translator(loaded, encoding, default_search(loaded.path))


def default_search(path: Path) -> SearchSettings:
    """Return the search settings that belong to a checkpoint or to the weights of an exported model."""
    if is_model_folder(path.parent):
        return read_config(path.parent).search
    return search_of_run(find_record_of_checkpoint(path))


def refuse_documents(loaded: LoadedModel) -> None:
    """Raise UserError if a model translates chunks of documents."""
    length = getattr(loaded.task.cfg, "document_length", 0)
    if length:
        raise UserError(
            f"{loaded.path}: translates chunks of documents of up to {length} tokens, not single lines; translate "
            "data-bins with relumt run --evaluate"
        )


def last_cross_attention(loaded: LoadedModel, pairs: Sequence[TokenPair]) -> list[Tensor | None]:
    """Return the weights [T, S] of the last layer's cross-attention, averaged over heads, for each pair."""
    sources, targets = zip(*pairs, strict=True)
    sample = loaded.collate(sources, targets)
    layers: list[Tensor | None] = []

    def keep(_: str, attention: MechanismAttention, result: AttentionOutput, mask: AttentionMask) -> None:
        if attention.site == "cross":
            # [B, H, T, S] -> [B, T, S]
            layers.append(None if result.weights is None else result.weights.float().mean(1))

    with attention_hook(loaded.model, keep, Need.WEIGHTS):
        loaded.model(**sample["net_input"], features_only=True)
    if not layers or layers[-1] is None:
        return [None] * len(pairs)
    is_source = sample["net_input"]["src_tokens"].ne(loaded.task.source_dictionary.pad())
    is_target = sample["target"].ne(loaded.task.target_dictionary.pad())
    rows = {
        position: layers[-1][row][is_target[row]][:, is_source[row]].cpu()
        for row, position in enumerate(sample["id"].tolist())
    }
    return [rows[position] for position in range(len(pairs))]


def find_links(weights: Tensor) -> list[tuple[int, int]]:
    """Return the links for weights [T, S]; see `Alignment`."""
    if weights.shape[1] < 2:
        return []
    (links,) = links_of_largest_weight(weights[None, :-1, :-1])
    return sorted(links, key=lambda link: link[1])
