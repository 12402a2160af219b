"""Dictionaries and binary files in fairseq's format.

They have the bytes that fairseq-preprocess would write, in a twentieth of its time: fairseq looks up and stores one
token at a time.
"""

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from relumt.console import quiet_fairseq
from relumt.errors import UserError
from relumt.files import file_sha256
from relumt.prep.options import SPLITS
from relumt.text_files import read_clean_lines

if TYPE_CHECKING:
    from fairseq.data import Dictionary

NUM_SPECIAL_SYMBOLS = 4  # <s> <pad> </s> <unk>, which are in every dictionary of fairseq but not in its file
BLOCK_LINES = 10_000
"""Number of lines that are encoded and written together."""


def binarize(texts: Path, languages: tuple[str, str], out: Path, joined: bool) -> None:
    """Write fairseq's dictionaries and binary files of the segmented texts to the folder `out`.

    Args:
        texts: folder of the texts, {split}.{language}.
        languages: language codes, source first.
        out: the data-bin.
        joined: use one dictionary for both languages.
    """
    quiet_fairseq()
    groups = [languages] if joined else [(language,) for language in languages]
    for group in groups:
        dictionary = build_dictionary(texts / f"train.{language}" for language in group)
        for language in group:
            dictionary.save(str(out / f"dict.{language}.txt"))
            for split in SPLITS:
                prefix = out / f"{split}.{'-'.join(languages)}.{language}"
                write_indices(texts / f"{split}.{language}", dictionary, prefix)


def build_dictionary(texts: Iterable[Path]) -> "Dictionary":
    """Return fairseq's dictionary of all words of the texts, the most frequent first."""
    from fairseq.data import Dictionary  # takes seconds

    counts: Counter[str] = Counter()
    for text in texts:
        for block in _read_blocks(text):
            counts.update(word for line in block for word in line.split())
    dictionary = Dictionary()
    for word, count in counts.items():
        dictionary.add_symbol(word, count)
    dictionary.finalize()
    return dictionary


def write_indices(text: Path, dictionary: "Dictionary", prefix: Path) -> None:
    """Write the words of a text as indices of a dictionary to PREFIX.bin and PREFIX.idx."""
    import numpy as np
    from fairseq.data.indexed_dataset import MMapIndexedDataset, best_fitting_int_dtype

    dtype = best_fitting_int_dtype(len(dictionary))
    index_of = _WordIndices(dictionary).__getitem__
    sizes = array("i")
    with Path(f"{prefix}.bin").open("wb") as file:
        for block in _read_blocks(text):
            indices = array("q")
            for line in block:
                words = line.split()
                indices.extend(map(index_of, words))
                indices.append(dictionary.eos())
                sizes.append(len(words) + 1)
            file.write(np.array(indices, dtype).tobytes())
    with MMapIndexedDataset.Index.writer(f"{prefix}.idx", dtype) as index:
        index.write(sizes)


class _WordIndices(dict[str, int]):
    """Indices by word; that of the unknown word for all others."""

    def __init__(self, dictionary: "Dictionary") -> None:
        super().__init__(dictionary.indices)
        self.unknown = dictionary.unk()

    def __missing__(self, word: str) -> int:
        return self.unknown


def _read_blocks(text: Path) -> Iterator[list[str]]:
    """Yield the lines of a text, BLOCK_LINES at a time."""
    lines = read_clean_lines(text)
    return iter(lambda: list(islice(lines, BLOCK_LINES)), [])


def require_absent(word: str, text: Path, original: Path) -> None:
    """Raise `UserError` if a text has the separator as a word or subword; `original` is the user's file."""
    padded = f" {word} "
    for number, line in enumerate(read_clean_lines(text), start=1):
        if padded in f" {line} ":
            raise UserError(
                f"{original}: the text contains the word {word} (sentence {number}); choose another "
                "--document-separator"
            )


def add_word(word: str, dictionary: Path) -> None:
    """Append a word to fairseq's dictionary, which must not have it; the indices of the other words do not change."""
    with dictionary.open("a", encoding="utf-8") as file:
        file.write(f"{word} 1\n")


def describe_dictionary(path: Path) -> dict[str, int | str]:
    """Return the number of types in a dictionary, including fairseq's special symbols, and its SHA-256."""
    return {"types": path.read_bytes().count(b"\n") + NUM_SPECIAL_SYMBOLS, "sha256": file_sha256(path)}
