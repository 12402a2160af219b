"""A data-bin: its languages, dictionaries, subwords and reference texts.

`data_prep/prepare.sh` leaves prepare.json and the reference texts in a data-bin. For one that fairseq-preprocess made
alone, the languages are read from file names, and the kind of subwords from the dictionary.
"""

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from relumt.errors import UserError
from relumt.files import file_sha256
from relumt.prep.test_subsets import Subsets, read_subsets, subsets_path

SubwordMethod = Literal["subword-nmt", "sentencepiece", "none"]

TRAIN_FILE = re.compile(r"train\.([^.-]+)-([^.-]+)\.\1\.idx")
MIN_SUBWORD_SHARE = 0.01
"""A dictionary is one of subwords if at least this share of its symbols has a marker; among words hardly any has."""


@dataclass(frozen=True)
class DataBin:
    """A data-bin.

    Attributes:
        folder: its path.
        source, target: language codes.
        subwords: how words are split; generation joins them again.
        tokenized: whether words are Moses tokens; then detokenization gives plain text.
        prepared: whether data_prep/prepare.sh made it; then text/ has the reference texts.
        plain_references: whether text/ also has the references before tokenization.
        lowercased: whether the text was lowercased; then scores must ignore case.
    """

    folder: Path
    source: str
    target: str
    subwords: SubwordMethod
    tokenized: bool
    prepared: bool = False
    plain_references: bool = False
    lowercased: bool = False

    def reference_path(self, subset: str) -> Path:
        """Return the path of the reference text of `subset`, in the data-bin's form without subwords."""
        return self.folder / "text" / f"{subset}.{self.target}"

    def plain_reference_path(self, subset: str) -> Path:
        """Return the path of the reference text of `subset` before tokenization."""
        return self.folder / "text" / f"{subset}.raw.{self.target}"

    def subsets(self, subset: str, num_lines: int) -> Subsets:
        """Return the subsets of the test set `subset`; raises UserError if they do not fit a text of `num_lines`."""
        return read_subsets(subsets_path(str(self.folder / "text" / subset)), num_lines)

    @property
    def languages(self) -> tuple[str, str]:
        """The language codes, source first."""
        return self.source, self.target

    def prefix(self, subset: str) -> Path:
        """Return the common prefix of fairseq's files of `subset`; ".LANGUAGE.idx" and ".LANGUAGE.bin" follow."""
        return self.folder / f"{subset}.{self.source}-{self.target}"

    def require_subset(self, subset: str) -> None:
        """Raise UserError if the data-bin has no `subset` ("train", "valid", "test")."""
        path = Path(f"{self.prefix(subset)}.{self.target}.idx")
        if not path.is_file():
            raise UserError(
                f"{path}: no such file, so there is no '{subset}' to translate; prepare the data-bin with this subset"
            )

    def checksum(self, subset: str, suffixes: tuple[str, ...]) -> str:
        """Return a checksum of twelve hexadecimal digits over the files of `subset` with these suffixes.

        "idx" has the sentence lengths, "bin" the tokens.
        """
        digest = hashlib.sha256()
        for language in self.languages:
            for suffix in suffixes:
                path = Path(f"{self.prefix(subset)}.{language}.{suffix}")
                digest.update(file_sha256(path).encode() if path.is_file() else b"none")
        return digest.hexdigest()[:12]

    def dictionaries(self) -> dict[str, str]:
        """Return the SHA-256 of each dictionary by language."""
        return {language: file_sha256(self.dictionary_path(language)) for language in self.languages}

    def dictionary_path(self, language: str) -> Path:
        """Return the path of fairseq's dictionary of a language."""
        return self.folder / f"dict.{language}.txt"


@dataclass(frozen=True)
class _PrepareRecord:
    """The fields of prepare.json that say what to undo before scoring."""

    source: str
    target: str
    bpe: SubwordMethod
    tokenized: bool
    lowercased: bool
    plain_references: bool


def open_data_bin(folder: Path) -> DataBin:
    """Describe the data-bin in `folder`.

    Raises:
        UserError: prepare.json is not valid, or there is no training set or dictionary.
    """
    prepare_json = folder / "prepare.json"
    data_bin = _read_prepared(prepare_json) if prepare_json.is_file() else _inspect(folder)
    for path in map(data_bin.dictionary_path, data_bin.languages):
        if not path.is_file():
            raise UserError(f"{path}: no such file; prepare the data-bin again")
    return data_bin


def _read_prepared(path: Path) -> DataBin:
    """Describe a data-bin made by data_prep/prepare.sh from its prepare.json."""
    try:
        record = msgspec.json.decode(path.read_bytes(), type=_PrepareRecord)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: not written by data_prep/prepare.sh ({error}); prepare the data-bin again") from None
    return DataBin(
        path.parent,
        record.source,
        record.target,
        record.bpe,
        tokenized=record.tokenized,
        prepared=True,
        plain_references=record.plain_references,
        lowercased=record.lowercased,
    )


def _inspect(folder: Path) -> DataBin:
    """Describe a data-bin made by fairseq-preprocess alone from its files."""
    names = [match for path in sorted(folder.iterdir()) if (match := TRAIN_FILE.fullmatch(path.name))]
    if len(names) != 1:
        raise UserError(
            f"{folder}: expected one training set (train.SRC-TGT.SRC.idx), found {len(names)}; "
            "make the data-bin with data_prep/prepare.sh or fairseq-preprocess"
        )
    source, target = names[0].groups()
    subwords = guess_subwords(folder / f"dict.{target}.txt")
    return DataBin(folder, source, target, subwords, tokenized=subwords != "sentencepiece")


def guess_subwords(dictionary: Path) -> SubwordMethod:
    """Return how words are split, from the markers of subword-nmt (@@) and sentencepiece (▁) in a dictionary."""
    try:
        symbols = [line.rpartition(" ")[0] for line in dictionary.read_text(encoding="utf-8").splitlines()]
    except FileNotFoundError:
        raise UserError(f"{dictionary}: no such file; prepare the data-bin again") from None
    threshold = MIN_SUBWORD_SHARE * len(symbols)
    if sum(symbol.startswith("▁") for symbol in symbols) > threshold:
        return "sentencepiece"
    if sum(symbol.endswith("@@") for symbol in symbols) > threshold:
        return "subword-nmt"
    return "none"
