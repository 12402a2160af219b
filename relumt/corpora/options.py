"""The options of `relumt prepare`, validated."""

import math
import re
from dataclasses import dataclass

from relumt.corpora.bpe import BPE_METHODS
from relumt.errors import UserError

BPE_CHOICES = (*BPE_METHODS, "none")

LANGUAGE = re.compile(r"(?!(docs|align|gz)$)[A-Za-z0-9][A-Za-z0-9_-]{0,31}")
"""P.docs and P.align hold no text, and P.gz would be read as compressed."""


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
    tokenize: bool = False
    tokenized_input: bool = False
    lowercase: bool = False
    max_length: int = 250
    max_ratio: float = 9.0
    separate_dictionaries: bool = False
    documents: str | None = None
    separator: str | None = None

    def __post_init__(self) -> None:
        if self.source == self.target:
            raise UserError(f"--src and --tgt are both {self.source!r}; they must differ")
        for language in self.languages:
            if not LANGUAGE.fullmatch(language):
                raise UserError(f"{language!r} is not a language code; give --src and --tgt codes such as de or zh-CN")
        if self.bpe == "none" and self.vocab_size is not None:
            raise UserError("--vocab-size has no effect with --bpe none; remove it")
        if self.tokenize and self.tokenized_input:
            raise UserError("--tokenize and --tokenized-input exclude each other; give one of them")
        if not 1 <= self.max_ratio < math.inf:
            raise UserError("--max-ratio must be at least 1 and finite")
        if self.separator is not None and self.separator.split() != [self.separator]:
            raise UserError(f"--document-separator {self.separator!r} is not one word; try <sep>")

    @property
    def languages(self) -> tuple[str, str]:
        """The language codes, source first."""
        return self.source, self.target
