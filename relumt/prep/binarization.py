"""Dictionaries and binary files in fairseq's format.

They have the bytes that fairseq-preprocess would write, in a twentieth of its time: fairseq looks up and stores one
token at a time.
"""

from array import array
from collections.abc import Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from relumt.errors import UserError
from relumt.fairseq_version import prepare_fairseq_import
from relumt.files import file_sha256
from relumt.prep.options import SPLITS
from relumt.prep.word_counts import count_words
from relumt.prep.workers import Chunk, map_chunks
from relumt.text_files import read_clean_lines

if TYPE_CHECKING:
    from fairseq.data import Dictionary

NUM_SPECIAL_SYMBOLS = 4  # <s> <pad> </s> <unk>, which are in every dictionary of fairseq but not in its file


def binarize(texts: Path, languages: tuple[str, str], out: Path, joined: bool) -> None:
    """Write fairseq's dictionaries and binary files of the segmented texts to the folder `out`.

    Args:
        texts: folder of the texts, {split}.{language}.
        languages: language codes, source first.
        out: the data-bin.
        joined: use one dictionary for both languages.
    """
    prepare_fairseq_import()
    groups = [languages] if joined else [(language,) for language in languages]
    for group in groups:
        dictionary = build_dictionary([texts / f"train.{language}" for language in group])
        for language in group:
            dictionary.save(str(out / f"dict.{language}.txt"))
            for split in SPLITS:
                prefix = out / f"{split}.{'-'.join(languages)}.{language}"
                write_indices(texts / f"{split}.{language}", dictionary, prefix)


def build_dictionary(texts: Sequence[Path]) -> "Dictionary":
    """Return fairseq's dictionary of all words of the texts, the most frequent first."""
    from fairseq.data import Dictionary  # takes seconds

    dictionary = Dictionary()
    for word, count in count_words(texts).items():
        dictionary.add_symbol(word, count)
    dictionary.finalize()
    return dictionary


def write_indices(text: Path, dictionary: "Dictionary", prefix: Path) -> None:
    """Write the words of a text as indices of a dictionary to PREFIX.bin and PREFIX.idx."""
    from fairseq.data.indexed_dataset import MMapIndexedDataset, best_fitting_int_dtype

    dtype = best_fitting_int_dtype(len(dictionary))
    encode = partial(_encode_chunk, "\n".join(dictionary.symbols), dictionary.unk(), dictionary.eos(), dtype)
    sizes = array("i")
    with Path(f"{prefix}.bin").open("wb") as file:
        for indices, sentence_sizes in map_chunks(encode, [text]):
            file.write(indices)
            sizes.extend(sentence_sizes)
    with MMapIndexedDataset.Index.writer(f"{prefix}.idx", dtype) as index:
        index.write(sizes)


def _encode_chunk(words: str, unknown: int, end: int, dtype: type, chunk: Chunk) -> tuple[bytes, "array[int]"]:
    """Return the indices of a chunk's words, as bytes of `dtype`, and the length of each sentence.

    Args:
        words: the words of the dictionary, one per line.
        unknown: index of the unknown word.
        end: index of the end of a sentence.
        dtype: NumPy type of an index.
        chunk: the lines to encode.
    """
    index_of = _index_words(words).get
    indices, sizes = array("q"), array("i")
    for line in chunk.read_lines():
        sentence = line.split()
        indices.extend([index_of(word, unknown) for word in sentence])
        indices.append(end)
        sizes.append(len(sentence) + 1)
    return np.array(indices, dtype).tobytes(), sizes


@lru_cache(1)
def _index_words(words: str) -> dict[str, int]:
    return {word: index for index, word in enumerate(words.split("\n"))}


def require_absent(word: str, text: Path, original: Path) -> None:
    """Raise `UserError` if a text has the separator, as a word or within one; `original` is the user's file.

    Joining subwords can attach a separator to the words beside it, so it must be recognizable within a word, too.
    """
    for number, line in enumerate(read_clean_lines(text), start=1):
        if word in line:
            raise UserError(
                f"{original}: the text contains {word} (sentence {number}); choose another --document-separator"
            )


def add_word(word: str, dictionary: Path) -> None:
    """Append a word to fairseq's dictionary, which must not have it; the indices of the other words do not change."""
    with dictionary.open("a", encoding="utf-8") as file:
        file.write(f"{word} 1\n")


def describe_dictionary(path: Path) -> dict[str, int | str]:
    """Return the number of types in a dictionary, including fairseq's special symbols, and its SHA-256."""
    return {"types": path.read_bytes().count(b"\n") + NUM_SPECIAL_SYMBOLS, "sha256": file_sha256(path)}
