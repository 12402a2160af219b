"""What to do to a bitext: the options of `relumt prepare`, checked."""

import math
from dataclasses import dataclass

from relumt.errors import UserError
from relumt.prep.bitext import RESERVED_WORDS
from relumt.prep.bpe import BPE_METHODS
from relumt.prep.markup import MARKUPS

SPLITS = ("train", "valid", "test")
HELD_OUT = ("valid", "test")
BPE_KINDS = (*BPE_METHODS, "none")


@dataclass(frozen=True)
class Options:
    """How a bitext becomes a data-bin.

    source, target: language codes, also the suffixes of the files. tokenize: split words with sacremoses.
    tokenized_input: the text given is Moses-tokenised already. vocab_size: merges for subword-nmt, pieces for
    sentencepiece, None without BPE. max_length: words a sentence of train may have. max_ratio: how many
    times longer than the other one side of a pair of train may be. documents: the kind of markup that tells documents
    apart, None where P.docs does or nothing. separator: a word that the dictionaries get besides those of the text, to
    stand between the sentences of a document. Raises `UserError`.
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
        if self.bpe not in BPE_KINDS:
            raise UserError(f"unknown --bpe {self.bpe!r}; choose one of {', '.join(BPE_KINDS)}")
        if self.bpe == "none" and self.vocab_size is not None:
            raise UserError("--vocab-size means nothing with --bpe none; leave it out")
        if self.bpe != "none" and (self.vocab_size is None or self.vocab_size < 1):
            raise UserError(f"--vocab-size is {self.vocab_size}; it must be at least 1, and finite")
        if self.tokenize and self.tokenized_input:
            raise UserError("--tokenize and --tokenized-input exclude each other; give one of them")
        if self.documents not in (None, *MARKUPS):
            raise UserError(f"unknown --documents {self.documents!r}; choose one of {', '.join(MARKUPS)}")
        if self.separator is not None and len(self.separator.split()) != 1:
            raise UserError(f"--document-separator {self.separator!r} is not one word; <sep> for example")
        if self.separator in {*RESERVED_WORDS, "<unk>"}:
            raise UserError(f"--document-separator {self.separator} is reserved by fairseq; <sep> for example")
        if self.max_length < 1 or not 1 <= self.max_ratio < math.inf:
            raise UserError("--max-length and --max-ratio must be at least 1, and finite")

    @property
    def languages(self) -> tuple[str, str]:
        """The two language codes, source first."""
        return self.source, self.target

    @property
    def tokenized(self) -> bool:
        """Whether the text that is segmented and scored is Moses-tokenised, by whomever."""
        return self.tokenize or self.tokenized_input
