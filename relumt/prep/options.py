"""The options of `relumt prepare`, validated."""

import math
import re
from dataclasses import dataclass

from relumt.errors import UserError
from relumt.prep.bitext import RESERVED_WORDS
from relumt.prep.bpe import BPE_METHODS
from relumt.prep.markup import MARKUPS
from relumt.text_files import normalize_line

SPLITS = ("train", "valid", "test")
HELD_OUT = ("valid", "test")
BPE_CHOICES = (*BPE_METHODS, "none")

LANGUAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}")
OTHER_SUFFIXES = ("docs", "align", "gz")
"""Suffixes that cannot be language codes: P.docs and P.align hold no text, and P.gz would be read as compressed."""

MADE_UP_WORD = re.compile(r"madeupword\d+")
"""fairseq fills up its dictionaries with these words."""

JOINS_WORDS = {"subword-nmt": re.compile(r".*@@"), "sentencepiece": re.compile(r".*▁.*"), "none": None}
"""BPE → words that would be joined with their neighbors, or split, when subwords are joined."""


@dataclass(frozen=True)
class Options:
    """How to turn a bitext into a data-bin.

    Attributes:
        source, target: language codes, which are also the suffixes of the files.
        bpe: one of BPE_CHOICES.
        vocab_size: number of merges for subword-nmt, of pieces for sentencepiece, None without BPE.
        tokenize: split words with sacremoses.
        tokenized_input: the input is Moses-tokenized already.
        lowercase: lowercase all texts.
        max_length: maximum number of words of a training sentence.
        max_ratio: maximum ratio between the numbers of words of the two sides of a training pair.
        separate_dictionaries: use one dictionary per language instead of a joint one.
        documents: key of MARKUPS if the texts contain document markup, otherwise None.
        separator: a word to add to the dictionaries, for use between the sentences of a document.

    Raises:
        UserError: the options are invalid or contradict one another.
    """

    source: str
    target: str
    bpe: str
    vocab_size: int | None
    tokenize: bool
    tokenized_input: bool
    lowercase: bool
    max_length: int
    max_ratio: float
    separate_dictionaries: bool
    documents: str | None = None
    separator: str | None = None

    def __post_init__(self) -> None:
        if self.source == self.target:
            raise UserError(f"--src and --tgt are both {self.source!r}; they must differ")
        for language in self.languages:
            if not LANGUAGE.fullmatch(language) or language in OTHER_SUFFIXES:
                raise UserError(
                    f"{language!r} is not a language code; give --src and --tgt codes such as de or zh-CN, and name "
                    "the texts accordingly"
                )
        if self.bpe not in BPE_CHOICES:
            raise UserError(f"unknown --bpe {self.bpe!r}; choose one of {', '.join(BPE_CHOICES)}")
        if self.bpe == "none" and self.vocab_size is not None:
            raise UserError("--vocab-size has no effect with --bpe none; remove it")
        if self.bpe != "none" and (self.vocab_size is None or self.vocab_size < 1):
            raise UserError(f"--vocab-size is {self.vocab_size}; it must be at least 1")
        if self.tokenize and self.tokenized_input:
            raise UserError("--tokenize and --tokenized-input exclude each other; give one of them")
        if self.documents not in (None, *MARKUPS):
            raise UserError(f"unknown --documents {self.documents!r}; choose one of {', '.join(MARKUPS)}")
        if self.separator is not None:
            self._check_separator(self.separator)
        if self.max_length < 1 or not 1 <= self.max_ratio < math.inf:
            raise UserError("--max-length and --max-ratio must be at least 1 and finite")

    def _check_separator(self, separator: str) -> None:
        if normalize_line(separator) != separator or len(separator.split()) != 1:
            raise UserError(f"--document-separator {separator!r} is not one word; try <sep>")
        if separator in {*RESERVED_WORDS, "<unk>"} or MADE_UP_WORD.fullmatch(separator):
            raise UserError(f"--document-separator {separator} is reserved by fairseq; try <sep>")
        joins_words = JOINS_WORDS[self.bpe]
        if joins_words and joins_words.fullmatch(separator):
            raise UserError(f"--document-separator {separator} looks like a subword of {self.bpe}; try <sep>")

    @property
    def languages(self) -> tuple[str, str]:
        """The language codes, source first."""
        return self.source, self.target

    @property
    def tokenized(self) -> bool:
        """Whether the text that is segmented and scored is Moses-tokenized, here or before."""
        return self.tokenize or self.tokenized_input
