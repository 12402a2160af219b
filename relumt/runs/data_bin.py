"""What a data-bin holds: its languages, dictionaries, subwords and reference texts.

A data-bin is made by `data_prep/prepare.sh`, which leaves prepare.json and the reference texts in it, or by
fairseq-preprocess alone, whose files then have to say the same: languages by their names, subwords by the look of
the dictionary.
"""

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from relumt.errors import UserError
from relumt.files import file_sha256
from relumt.prep.test_subsets import Subsets, read_subsets, subsets_path

Subwords = Literal["subword-nmt", "sentencepiece", "none"]

TRAIN_FILE = re.compile(r"train\.([^.-]+)-([^.-]+)\.\1\.idx")
SHARE_OF_SUBWORDS = 0.01
"""A dictionary of subwords has far more marked symbols than this; one of words has next to none."""


@dataclass(frozen=True)
class DataBin:
    """A data-bin.

    Attributes:
        folder: where it is.
        source, target: language codes.
        subwords: how its words are split, which generation has to undo.
        tokenized: its words are Moses tokens, so that detokenising gives plain text.
        prepared: `data_prep/prepare.sh` made it, so that text/ holds the reference texts.
        plain_reference: text/ also holds the reference as it was before tokenisation.
        lowercased: its text was put into lower case, so that scores must ignore case.
    """

    folder: Path
    source: str
    target: str
    subwords: Subwords
    tokenized: bool
    prepared: bool = False
    plain_reference: bool = False
    lowercased: bool = False

    def reference_path(self, subset: str) -> Path:
        """Reference text of `subset` without subwords, as the model sees it otherwise."""
        return self.folder / "text" / f"{subset}.{self.target}"

    def plain_reference_path(self, subset: str) -> Path:
        """Reference text of `subset` as it came."""
        return self.folder / "text" / f"{subset}.raw.{self.target}"

    def parts(self, subset: str, lines: int) -> Subsets:
        """Smaller sets within `subset`; raises UserError if they are not of a text of so many lines."""
        return read_subsets(subsets_path(str(self.folder / "text" / subset)), lines)

    @property
    def languages(self) -> tuple[str, str]:
        """The language codes, source first."""
        return self.source, self.target

    def prefix(self, subset: str) -> Path:
        """What the names of fairseq's files of `subset` begin with; ".LANGUAGE.idx" and ".bin" follow."""
        return self.folder / f"{subset}.{self.source}-{self.target}"

    def require(self, subset: str) -> None:
        """Raise UserError if the data-bin has no `subset` ("train", "valid", "test")."""
        path = Path(f"{self.prefix(subset)}.{self.target}.idx")
        if not path.is_file():
            raise UserError(f"{path}: no such file, so no '{subset}' to translate; make the data-bin with it")

    def checksum(self, subset: str, ends: tuple[str, ...]) -> str:
        """Twelve hexadecimal digits over the files of `subset` that end so: "idx" has the lengths, "bin" the words."""
        digest = hashlib.sha256()
        for path in (Path(f"{self.prefix(subset)}.{language}.{end}") for language in self.languages for end in ends):
            digest.update(file_sha256(path).encode() if path.is_file() else b"none")
        return digest.hexdigest()[:12]

    def dictionaries(self) -> dict[str, str]:
        """SHA-256 of each dictionary by its language."""
        return {language: file_sha256(self.dictionary_path(language)) for language in self.languages}

    def dictionary_path(self, language: str) -> Path:
        """fairseq's dictionary of a language."""
        return self.folder / f"dict.{language}.txt"


def open_data_bin(folder: Path) -> DataBin:
    """Look at the data-bin in `folder`.

    Raises:
        UserError: prepare.json cannot be read, or there is no training set or dictionary.
    """
    data_bin = prepared_data_bin(folder) if (folder / "prepare.json").is_file() else plain_data_bin(folder)
    for language in (data_bin.source, data_bin.target):
        if not data_bin.dictionary_path(language).is_file():
            raise UserError(f"{data_bin.dictionary_path(language)}: no such file; make the data-bin again")
    return data_bin


def prepared_data_bin(folder: Path) -> DataBin:
    """A data-bin that `data_prep/prepare.sh` made; raises UserError for a prepare.json that lacks a field."""
    path = folder / "prepare.json"
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        return DataBin(
            folder,
            record["source"],
            record["target"],
            record["bpe"],
            tokenized=record["tokenized"],
            prepared=True,
            plain_reference=record.get("plain_references", not record["options"]["tokenized_input"]),
            lowercased=record["lowercased"],
        )
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path}: not a record of data_prep/prepare.sh ({error}); make the data-bin again") from None


def plain_data_bin(folder: Path) -> DataBin:
    """A data-bin that fairseq-preprocess made; raises UserError where there is no single training set."""
    names = [match for path in sorted(folder.iterdir()) if (match := TRAIN_FILE.fullmatch(path.name))]
    if len(names) != 1:
        raise UserError(
            f"{folder}: {len(names)} training sets (train.SRC-TGT.SRC.idx), not one; "
            "make the data-bin with data_prep/prepare.sh or fairseq-preprocess"
        )
    source, target = names[0].groups()
    subwords = subwords_of(folder / f"dict.{target}.txt")
    return DataBin(folder, source, target, subwords, tokenized=subwords != "sentencepiece")


def subwords_of(dictionary: Path) -> Subwords:
    """How the symbols of a dictionary are split, by the marks that subword-nmt (@@) and sentencepiece (▁) leave."""
    try:
        symbols = [line.rpartition(" ")[0] for line in dictionary.read_text(encoding="utf-8").splitlines()]
    except FileNotFoundError:
        raise UserError(f"{dictionary}: no such file; make the data-bin again") from None
    enough = SHARE_OF_SUBWORDS * len(symbols)
    if sum(symbol.startswith("▁") for symbol in symbols) > enough:
        return "sentencepiece"
    if sum(symbol.endswith("@@") for symbol in symbols) > enough:
        return "subword-nmt"
    return "none"
