"""A data-bin: its languages, dictionaries, subwords and reference texts.

`data_prep/prepare.sh` leaves prepare.json and the reference texts in a data-bin. For one that fairseq-preprocess made
alone, the languages are read from file names, and the kind of subwords from the dictionary.
"""

import hashlib
import re
import shutil
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Literal

from relumt.corpora.bpe import BPE_METHODS
from relumt.corpora.record import PREPARE_RECORD, dictionary_path
from relumt.errors import UserError
from relumt.files import encode_json, file_sha256, load_text, read_json
from relumt.folders import atomic_folder
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
        """Return the number of sentence pairs of `subset`, which fairseq's index says; raises as `sizes`."""
        return len(self.sizes(subset, self.target))

    def longest(self, subset: str) -> list[tuple[int, int]]:
        """Return the length in tokens and the number, from 1, of the longest source and target; raises as `sizes`."""
        sides = (enumerate(self.sizes(subset, language), start=1) for language in self.languages)
        return [max(((length, number) for number, length in side), default=(0, 0)) for side in sides]

    def sizes(self, subset: str, language: str) -> memoryview:
        """Return the number of tokens of each sentence in one language of `subset`.

        Raises:
            UserError: the index does not have fairseq's default format, mmap, or is cut off.
        """
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
        return self._checksum(path for path in self.folder.iterdir() if name.fullmatch(path.name))

    def evaluation_checksum(self, subset: str) -> str:
        """Return a SHA-256 over all files that decide the scores of `subset`: its data and its reference texts."""
        texts = [self.text_path(subset, suffix) for suffix in (self.target, f"raw.{self.target}", "subsets.json")]
        return self._checksum([*self.folder.glob(f"{subset}.*"), *(texts if self.prepared else [])])

    def _checksum(self, paths: Iterable[Path]) -> str:
        """Return a SHA-256 over the names and the contents of those paths that are files."""
        digest = hashlib.sha256()
        for name, content in self._file_checksums(paths).items():
            digest.update(f"{name}\0{content}\n".encode("utf-8", "surrogateescape"))
        return digest.hexdigest()

    def dictionaries(self) -> dict[str, str]:
        """Return the SHA-256 of each dictionary by language, source first."""
        paths = [self.dictionary_path(language) for language in self.languages]
        checksums = self._file_checksums(paths)
        return {language: checksums[path.name] for language, path in zip(self.languages, paths, strict=True)}

    def _file_checksums(self, paths: Iterable[Path]) -> dict[str, str]:
        """Return the SHA-256 of those paths that are files, by their names in the data-bin."""
        found = sorted(path for path in paths if path.is_file())
        with ThreadPoolExecutor(HASHING_THREADS) as pool:
            checksums = pool.map(file_sha256, found)
            return {path.relative_to(self.folder).as_posix(): sha for path, sha in zip(found, checksums, strict=True)}

    def dictionary_path(self, language: str) -> Path:
        """Return the path of fairseq's dictionary of a language."""
        return dictionary_path(self.folder, language)

    @property
    def subwords_path(self) -> Path | None:
        """The path of the file with the merges or the model that split words, None without subwords."""
        method = BPE_METHODS.get(self.bpe)
        return self.folder / method.file if method else None

    def require_subwords(self) -> None:
        """Raise UserError if the file that splits words is missing or not that of this data-bin."""
        path = self.subwords_path
        if path is None:
            return
        if not path.is_file():
            raise UserError(f"{path}: no such file, so text cannot be split into subwords; copy it there")
        if self.bpe_sha256 not in (None, file_sha256(path)):
            raise UserError(
                f"{path}: damaged, or of another data-bin (its checksum is not the one in {PREPARE_RECORD}); copy it "
                "again"
            )

    @property
    def preparation(self) -> Preparation:
        """How a text becomes the model's input, without what only concerns the texts of this data-bin."""
        found = Preparation(**{field.name: getattr(self, field.name) for field in fields(Preparation)})
        return replace(found, plain_references=False)


def open_data_bin(folder: Path) -> DataBin:
    """Describe the data-bin in `folder`.

    Raises:
        UserError: prepare.json or the path is not valid, or there is no training set or dictionary.
    """
    require_path(folder, "data-bin")
    try:
        record = read_json(folder / PREPARE_RECORD, Preparation, "prepare the data-bin again")
        data_bin = DataBin(folder=folder, prepared=True, **asdict(record))
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
            "make the data-bin with relumt prepare or fairseq-preprocess"
        )
    source, target = names[0].groups()
    subwords = guess_subwords(dictionary_path(folder, target))
    tokenized = subwords != "sentencepiece"
    return DataBin(folder=folder, source=source, target=target, tokenized=tokenized, bpe=subwords)


def write_preparation(folder: Path, data_bin: DataBin) -> None:
    """Write what turns text into a model's input and back: dictionaries, subwords and a short prepare.json."""
    for path in (*map(data_bin.dictionary_path, data_bin.languages), data_bin.subwords_path):
        if path and path.is_file():  # fairseq-preprocess leaves no subwords in a data-bin
            shutil.copyfile(path, folder / path.name)
    (folder / PREPARE_RECORD).write_text(encode_json(data_bin.preparation), encoding="utf-8")


def keep_preparation(folder: Path, data_bin: DataBin) -> None:
    """Let `folder` have what `write_preparation` writes; what it has stays if it says the same as the data-bin."""
    with suppress(UserError):  # nothing is kept, or not all of it
        kept = open_data_bin(folder)
        if kept.preparation == data_bin.preparation and kept.dictionaries() == data_bin.dictionaries():
            return
    with atomic_folder(folder) as stage:
        write_preparation(stage.result, data_bin)


def find_subwords(folder: Path, target: str) -> SubwordMethod:
    """Return how the words of a data-bin are split, from its prepare.json or the dictionary of the target language.

    Raises:
        UserError: prepare.json is not valid; or there is neither, or the dictionary is not UTF-8.
    """
    if (folder / PREPARE_RECORD).is_file():
        return open_data_bin(folder).bpe
    return guess_subwords(dictionary_path(folder, target))


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
