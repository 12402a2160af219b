"""Text to token indices and back, by the steps with which a data-bin was prepared."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
from fairseq.data import Dictionary
from fairseq.tasks import FairseqTask
from torch import Tensor

from relumt.corpora.bitext import RESERVED_WORDS
from relumt.corpora.bpe import BPE_METHODS
from relumt.corpora.tokenization import detokenize, lowercase, normalize_punctuation, tokenize
from relumt.errors import UserError
from relumt.files import normalize_line
from relumt.runs.data_bin import DataBin, open_data_bin
from relumt.runs.run_config import POST_PROCESS


@dataclass(frozen=True)
class TextEncoding:
    """How text becomes the input of a model, and how its output becomes text.

    Attributes:
        data_bin: says how the model's training text was prepared.
        source, target: fairseq's dictionaries.
        segment: splits tokenized lines into subwords.
        is_tokenized: whether the text of the user consists of Moses tokens, as the texts in a data-bin do.
    """

    data_bin: DataBin
    source: Dictionary
    target: Dictionary
    segment: Callable[[list[str]], Iterable[str]]
    is_tokenized: bool

    def encode(self, texts: Iterable[str]) -> list[Tensor]:
        """Return the token indices of each text with the end-of-sentence symbol, which is all that an empty text has.

        Words that the dictionary lacks, and fairseq's special symbols, become the unknown word. A line break in a text
        counts as a space.
        """
        lines = [normalize_line(text) for text in texts]
        language = self.data_bin.source
        if self.data_bin.tokenized and not self.is_tokenized:
            if self.data_bin.punctuation_normalized:
                lines = normalize_punctuation(lines, language)
            lines = tokenize(lines, language)
        if self.data_bin.lowercased:
            lines = lowercase(lines)
        return [index_words(line, self.source) for line in self.segment(lines)]

    def decode(self, sequences: Iterable[Tensor]) -> list[str]:
        """Return the texts of token indices in the target language: subwords are joined, and words detokenized."""
        join = POST_PROCESS.get(self.data_bin.bpe)
        lines = [self.target.string(tokens, join) for tokens in sequences]
        return detokenize(lines, self.data_bin.target) if self.data_bin.tokenized and not self.is_tokenized else lines


def index_words(line: str, dictionary: Dictionary) -> Tensor:
    """Return the indices of a line's words and of the end-of-sentence symbol.

    Words that the dictionary lacks, and fairseq's special symbols, become the unknown word.
    """
    words = line.split()
    indices = [dictionary.unk() if word in RESERVED_WORDS else dictionary.index(word) for word in words]
    return torch.tensor([*indices, dictionary.eos()])


def load_encoding(data: Path, task: FairseqTask, is_tokenized: bool) -> TextEncoding:
    """Return the encoding of a data-bin's texts.

    Args:
        data: the data-bin.
        task: fairseq's task of the model, with its languages and dictionaries.
        is_tokenized: see `TextEncoding`.

    Raises:
        UserError: the data-bin is not complete, has other languages than the model, or its text is not tokenized but
            `is_tokenized` is set.
    """
    data_bin = open_data_bin(data)
    require_languages(data_bin, (task.cfg.source_lang, task.cfg.target_lang))
    if is_tokenized and not data_bin.tokenized:
        raise UserError(f"{data}: its text is not tokenized, so the model reads plain text; drop --tokenized")
    return TextEncoding(data_bin, task.source_dictionary, task.target_dictionary, load_segmenter(data), is_tokenized)


def require_languages(data_bin: DataBin, languages: tuple[str | None, str | None]) -> None:
    """Raise UserError unless these languages of a model, source first, are those of its data-bin, if they are known."""
    if None not in languages and data_bin.languages != languages:
        raise UserError(
            f"{data_bin.folder}: translates {'-'.join(data_bin.languages)}, but the model "
            f"{'-'.join(map(str, languages))}; give the data-bin that the model was trained on"
        )


def load_segmenter(data: Path) -> Callable[[list[str]], Iterable[str]]:
    """Return the function that splits tokenized lines into the subwords of a data-bin.

    Raises:
        UserError: the data-bin has no file of subwords, or that of another data-bin.
    """
    data_bin = open_data_bin(data)
    data_bin.require_subwords()
    return BPE_METHODS[data_bin.bpe].load(data) if data_bin.bpe in BPE_METHODS else list
