"""A data-bin: its languages, dictionaries, subwords and reference texts.

`data_prep/prepare.sh` leaves prepare.json and the reference texts in a data-bin. For one that fairseq-preprocess made
alone, the languages are read from file names, and the kind of subwords from the dictionary.
"""

import hashlib
import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from relumt.errors import UserError
from relumt.files import file_sha256, load_text, read_json
from relumt.runs.flags import require_path

SubwordMethod = Literal["subword-nmt", "sentencepiece", "none"]

TRAIN_FILE = re.compile(r"train\.([^.-]+)-([^.-]+)\.\1\.idx")

INDEX_MAGIC = b"MMIDIDX\0\0"
"""Start of fairseq's index."""

INDEX_HEADER = 17
"""Bytes that follow: version (8), type of the tokens (1) and number of sentences (8). Then comes each sentence's number
of tokens (4)."""

HASHING_THREADS = 4
"""A subset has two large files in each language."""

MIN_SUBWORD_SHARE = 0.01
"""A dictionary is one of subwords if at least this share of its symbols has a marker; among words hardly any has."""


@dataclass(frozen=True, kw_only=True)
class Preparation:
    """What prepare.json says: how a text becomes the model's input, and what to undo before scoring.

    Attributes:
        source, target: language codes.
        tokenized: whether words are Moses tokens; then detokenization gives plain text.
        lowercased: whether the text was lowercased; then scores must ignore case.
        punctuation_normalized: whether the source's punctuation was normalized before tokenization.
        bpe: how words are split; generation joins them again.
        bpe_sha256: checksum of the file that splits words, None if it is not recorded or there is none.
        plain_references: whether text/ also has the references before tokenization.
    """

    source: str
    target: str
    tokenized: bool
    lowercased: bool = False
    punctuation_normalized: bool = False
    bpe: SubwordMethod
    bpe_sha256: str | None = None
    plain_references: bool = False


@dataclass(frozen=True, kw_only=True)
class DataBin(Preparation):
    """A data-bin.

    Attributes:
        folder: its path.
        prepared: whether data_prep/prepare.sh made it; then text/ has the reference texts.
    """

    folder: Path
    prepared: bool = False

    @property
    def languages(self) -> tuple[str, str]:
        """The language codes, source first."""
        return self.source, self.target

    def text_path(self, subset: str, suffix: str) -> Path:
        """Return the path of a text of `subset`.

        Args:
            subset: name of the subset.
            suffix: a language for the data-bin's form without subwords, raw.LANGUAGE for the text before tokenization,
                subsets.json for what names subsets of a test set (optional).
        """
        return self.folder / "text" / f"{subset}.{suffix}"

    def prefix(self, subset: str) -> Path:
        """Return the common prefix of fairseq's files of `subset`; ".LANGUAGE.idx" and ".LANGUAGE.bin" follow."""
        return self.folder / f"{subset}.{self.source}-{self.target}"

    def index_path(self, subset: str, language: str) -> Path:
        """Return the path of fairseq's index of one side of `subset`."""
        return Path(f"{self.prefix(subset)}.{language}.idx")

    def has_subset(self, subset: str) -> bool:
        """Return whether the data-bin has `subset` ("train", "valid", "test")."""
        return self.index_path(subset, self.target).is_file()

    def require_subset(self, subset: str) -> None:
        """Raise UserError if the data-bin has no `subset`."""
        if not self.has_subset(subset):
            raise UserError(
                f"{self.index_path(subset, self.target)}: no such file, so the data-bin has no subset '{subset}'; "
                "prepare it with this subset"
            )

    def num_sentences(self, subset: str) -> int:
        """Return the number of sentence pairs of `subset`, which fairseq's index says.

        Raises:
            UserError: the index is of a format other than fairseq's default, mmap.
        """
        return len(self._sizes(subset, self.target))

    def longest(self, subset: str) -> list[tuple[int, int]]:
        """Return the length in tokens and the number, from 1, of the longest source and the longest target.

        Raises:
            UserError: as `num_sentences`.
        """
        sides = (enumerate(self._sizes(subset, language), start=1) for language in self.languages)
        return [max(((length, number) for number, length in side), default=(0, 0)) for side in sides]

    def _sizes(self, subset: str, language: str) -> memoryview:
        """Return the number of tokens of each sentence in one language of `subset`."""
        path = self.index_path(subset, language)
        content = path.read_bytes()
        start = len(INDEX_MAGIC) + INDEX_HEADER
        end = start + 4 * int.from_bytes(content[start - 8 : start], "little")
        if not content.startswith(INDEX_MAGIC) or len(content) < end:
            raise UserError(f"{path}: not a complete index of --dataset-impl mmap; prepare the data-bin again")
        return memoryview(content)[start:end].cast("i")

    def training_checksum(self, subset: str) -> str:
        """Return a SHA-256 over all files that training may read as `subset`, names included.

        They are all whose names begin with the subset's and a dot, such as the tokens, the sentence lengths, alignments
        and the lengths of documents, and those of train1, train2, …, which fairseq appends to train. Their contents are
        read at about 1 GB/s and core; sizes and times are not trusted, because `cp -p` and `touch -r` forge them.
        """
        name = re.compile(rf"{re.escape(subset)}\d*\..+", re.DOTALL)
        return _checksum(self.folder, (path for path in self.folder.iterdir() if name.fullmatch(path.name)))

    def evaluation_checksum(self, subset: str) -> str:
        """Return a SHA-256 over all files that decide the scores of `subset`: its data and its reference texts."""
        texts = [self.text_path(subset, suffix) for suffix in (self.target, f"raw.{self.target}", "subsets.json")]
        return _checksum(self.folder, [*self.folder.glob(f"{subset}.*"), *(texts if self.prepared else [])])

    def dictionaries(self) -> dict[str, str]:
        """Return the SHA-256 of each dictionary by language, source first."""
        return {language: file_sha256(self.dictionary_path(language)) for language in self.languages}

    def dictionary_path(self, language: str) -> Path:
        """Return the path of fairseq's dictionary of a language."""
        return self.folder / f"dict.{language}.txt"


def open_data_bin(folder: Path) -> DataBin:
    """Describe the data-bin in `folder`.

    Raises:
        UserError: prepare.json or the path is not valid, or there is no training set or dictionary.
    """
    require_path(folder, "data-bin")
    try:
        preparation = read_json(folder / "prepare.json", Preparation, "prepare the data-bin again")
        data_bin = DataBin(folder=folder, prepared=True, **asdict(preparation))
    except FileNotFoundError:
        data_bin = _inspect(folder)
    for language in data_bin.languages:
        if not data_bin.dictionary_path(language).is_file():
            raise UserError(f"{data_bin.dictionary_path(language)}: no such file; prepare the data-bin again")
    return data_bin


def _inspect(folder: Path) -> DataBin:
    """Describe a data-bin made by fairseq-preprocess alone from its files."""
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder; prepare the data-bin first")
    names = [match for path in sorted(folder.iterdir()) if (match := TRAIN_FILE.fullmatch(path.name))]
    if len(names) != 1:
        raise UserError(
            f"{folder}: expected one training set (train.SRC-TGT.SRC.idx), found {len(names)}; "
            "make the data-bin with data_prep/prepare.sh or fairseq-preprocess"
        )
    source, target = names[0].groups()
    subwords = guess_subwords(folder / f"dict.{target}.txt")
    tokenized = subwords != "sentencepiece"
    return DataBin(folder=folder, source=source, target=target, tokenized=tokenized, bpe=subwords)


def gold_alignments_path(folder: Path, subset: str) -> Path:
    """Return the path of the gold alignments of `subset` in a data-bin, which need not exist."""
    return folder / "text" / f"{subset}.align"


def _checksum(folder: Path, paths: Iterable[Path]) -> str:
    """Return a SHA-256 over the names in `folder` and the contents of those paths that are files."""
    files = sorted(path for path in paths if path.is_file())
    with ThreadPoolExecutor(HASHING_THREADS) as pool:
        contents = pool.map(file_sha256, files)
    digest = hashlib.sha256()
    for path, content in zip(files, contents, strict=True):
        digest.update(f"{path.relative_to(folder).as_posix()}\0{content}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def find_subwords(folder: Path, target: str) -> SubwordMethod:
    """Return how the words of a data-bin are split, from its prepare.json or the dictionary of the target language.

    Raises:
        UserError: prepare.json is not valid; or there is neither, or the dictionary is not UTF-8.
    """
    if (folder / "prepare.json").is_file():
        return open_data_bin(folder).bpe
    return guess_subwords(folder / f"dict.{target}.txt")


def guess_subwords(dictionary: Path) -> SubwordMethod:
    """Return how words are split, from the markers of subword-nmt (@@) and sentencepiece (▁) in a dictionary.

    Raises:
        UserError: the file does not exist or is not UTF-8.
    """
    symbols = [line.rpartition(" ")[0] for line in load_text(dictionary)]
    threshold = MIN_SUBWORD_SHARE * len(symbols)
    if sum(symbol.startswith("▁") for symbol in symbols) > threshold:
        return "sentencepiece"
    if sum(symbol.endswith("@@") for symbol in symbols) > threshold:
        return "subword-nmt"
    return "none"
